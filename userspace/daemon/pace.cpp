// SPDX-License-Identifier: MIT
#include "daemon/pace.hpp"

#include <algorithm>

namespace mercury::daemon {

using namespace std::chrono_literals;

void Pace::step(Clock::time_point now) {
    if (steps_ > 0)
        intervals_.at((steps_ - 1) % kept) = now - last_;
    last_ = now;
    ++steps_;
}

std::optional<std::chrono::nanoseconds> Pace::interval() const {
    if (steps_ <= enough)
        return std::nullopt;
    auto sorted = intervals_;
    const std::size_t count = std::min<std::uint64_t>(steps_ - 1, kept);
    auto* const middle = sorted.begin() + count / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + count);
    return *middle;
}

bool Pace::is_stale(Clock::time_point now) const {
    const auto patience = std::max<std::chrono::nanoseconds>(10s, 10 * interval().value_or(0ns));
    return steps_ > 0 && now - last_ > patience;
}

}  // namespace mercury::daemon
