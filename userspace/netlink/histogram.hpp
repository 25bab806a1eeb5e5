// SPDX-License-Identifier: MIT
//
// The histogram of sojourn times, as MERCURY_SOJOURN_BUCKETS describes it. A dump may have any
// number of buckets; the last one has no upper bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "netlink/types.hpp"

namespace mercury::netlink {

using Histogram = std::span<const std::uint64_t>;  // packets, by bucket

/// What BUCKET counts waited less than this; nothing, if that has no bound.
std::optional<Time> upper_bound(Histogram histogram, std::size_t bucket);

/// What BUCKET counts waited at least so long.
Time lower_bound(std::size_t bucket);

std::uint64_t total(Histogram histogram);

/// The bucket in which PART (0 to 1) of all packets is reached; nothing, if there are no packets.
std::optional<std::size_t> quantile(Histogram histogram, double part);

}  // namespace mercury::netlink
