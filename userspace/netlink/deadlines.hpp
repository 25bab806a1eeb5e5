// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "netlink/types.hpp"

namespace mercury::netlink {

/// The deadline of each band of each job of one qdisc.
class DeadlineTable {
  public:
    /// All have MERCURY_DEADLINE_DEFAULT.
    DeadlineTable(std::uint32_t jobs, std::uint32_t bands);

    /// As a request does: a later one overrides an earlier one. Jobs and bands that are not here
    /// are passed over.
    void set(std::span<const Deadline> deadlines);
    Time at(std::uint32_t job, std::uint32_t band) const { return times_[job * bands_ + band]; }
    /// As a dump does, but all of them: runs of bands whose deadline is not the default, named once
    /// for every job if all jobs have the same.
    std::vector<Deadline> runs() const;

    friend bool operator==(const DeadlineTable&, const DeadlineTable&) = default;

  private:
    std::span<const Time> job(std::uint32_t number) const;

    std::uint32_t jobs_;
    std::uint32_t bands_;
    std::vector<Time> times_;
};

}  // namespace mercury::netlink
