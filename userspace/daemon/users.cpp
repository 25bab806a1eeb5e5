// SPDX-License-Identifier: MIT
#include "daemon/users.hpp"

#include <algorithm>

namespace mercury::daemon {
namespace {

constexpr std::size_t message_unit = 256;  // bytes
// A message brings as many as 253 more.
constexpr std::size_t descriptors_max = 64;

}  // namespace

Clock::time_point User::may_speak_at(Clock::time_point now) {
    const std::chrono::duration<double> passed = now - credited_;
    // What was not said in a second cannot be said later.
    credit_ = std::min<double>(limits_.messages, credit_ + passed.count() * limits_.messages);
    credited_ = now;
    const std::chrono::duration<double> wait((1 - std::min(credit_, 1.0)) / limits_.messages);
    return now + std::chrono::ceil<Clock::duration>(wait);
}

bool User::has_room() {
    if (descriptors >= descriptors_max)
        full_ = true;
    else if (descriptors <= descriptors_max / 2)
        full_ = false;
    return !full_;
}

bool User::is_idle(Clock::time_point now) {
    may_speak_at(now);
    return credit_ >= limits_.messages && clients == 0 && descriptors == 0;
}

void User::spend(std::size_t message_bytes) {
    credit_ -= 1 + static_cast<double>(message_bytes / message_unit);
}

}  // namespace mercury::daemon
