// SPDX-License-Identifier: MIT
#include "netlink/deadlines.hpp"

#include <algorithm>
#include <cstddef>

namespace mercury::netlink {
namespace {

constexpr Time unset{MERCURY_DEADLINE_DEFAULT};

void add_runs(std::span<const Time> bands, std::optional<std::uint16_t> job,
              std::vector<Deadline>& runs) {
    for (std::size_t first = 0, next = 0; first < bands.size(); first = next) {
        while (next < bands.size() && bands[next] == bands[first])
            ++next;
        if (bands[first] != unset) {
            runs.push_back({job, static_cast<std::uint16_t>(first),
                            static_cast<std::uint16_t>(next - 1), bands[first]});
        }
    }
}

}  // namespace

DeadlineTable::DeadlineTable(std::uint32_t jobs, std::uint32_t bands)
    : jobs_(jobs), bands_(bands), times_(std::size_t{jobs} * bands, unset) {}

std::span<const Time> DeadlineTable::job(std::uint32_t number) const {
    return std::span(times_).subspan(std::size_t{number} * bands_, bands_);
}

void DeadlineTable::set(std::span<const Deadline> deadlines) {
    for (const Deadline& deadline : deadlines) {
        for (std::uint32_t job = 0; job < jobs_; ++job) {
            if (deadline.job.value_or(job) != job)
                continue;
            for (std::uint32_t band = deadline.first; band <= deadline.last && band < bands_;
                 ++band)
                times_[std::size_t{job} * bands_ + band] = deadline.time;
        }
    }
}

std::vector<Deadline> DeadlineTable::runs() const {
    std::vector<Deadline> runs;
    bool same = true;
    for (std::uint32_t number = 1; number < jobs_; ++number)
        same = same && std::ranges::equal(job(number), job(0));
    if (same) {
        add_runs(job(0), {}, runs);
        return runs;
    }
    for (std::uint32_t number = 0; number < jobs_; ++number)
        add_runs(job(number), static_cast<std::uint16_t>(number), runs);
    return runs;
}

}  // namespace mercury::netlink
