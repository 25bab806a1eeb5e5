// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/reactor.hpp"

namespace mercury::daemon {

/// The time from one iteration to the next, from the steps that a client announces.
///
/// It is the median of the last nine intervals: a pause for an evaluation or a checkpoint does not
/// move it, and a change that stays has moved it after five. Before there are three it is unknown.
///
/// Who has announced steps and then none for ten intervals, ten seconds at least, is stale: what
/// was derived from them no longer holds.
class Pace {
  public:
    void step(Clock::time_point now);

    std::optional<std::chrono::nanoseconds> interval() const;
    bool is_stale(Clock::time_point now) const;
    std::uint64_t steps() const { return steps_; }

  private:
    static constexpr std::size_t kept = 9;
    static constexpr std::size_t enough = 3;

    std::array<std::chrono::nanoseconds, kept> intervals_{};
    std::uint64_t steps_ = 0;
    Clock::time_point last_{};
};

}  // namespace mercury::daemon
