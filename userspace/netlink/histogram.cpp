// SPDX-License-Identifier: MIT
#include "netlink/histogram.hpp"

#include <numeric>

namespace mercury::netlink {
namespace {

/// Bounds beyond this do not fit.
constexpr std::size_t bounded_buckets = 64 - MERCURY_SOJOURN_SHIFT;

Time bound_of(std::size_t bucket) {
    return Time{std::uint64_t{1} << (MERCURY_SOJOURN_SHIFT + bucket)};
}

}  // namespace

std::optional<Time> upper_bound(Histogram histogram, std::size_t bucket) {
    if (bucket + 1 >= histogram.size() || bucket >= bounded_buckets)
        return {};
    return bound_of(bucket);
}

Time lower_bound(std::size_t bucket) {
    if (bucket == 0)
        return Time{0};
    return bucket > bounded_buckets ? Time::max() : bound_of(bucket - 1);
}

std::uint64_t total(Histogram histogram) {
    return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
}

std::optional<std::size_t> quantile(Histogram histogram, double part) {
    const std::uint64_t all = total(histogram);
    if (all == 0)
        return {};
    const double wanted = part * static_cast<double>(all);
    double seen = 0;
    std::size_t last = 0;  // that has packets
    for (std::size_t bucket = 0; bucket < histogram.size(); ++bucket) {
        if (histogram[bucket] == 0)
            continue;
        seen += static_cast<double>(histogram[bucket]);
        last = bucket;
        if (seen >= wanted)
            break;
    }
    return last;
}

}  // namespace mercury::netlink
