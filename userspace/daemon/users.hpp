// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/reactor.hpp"
#include "daemon/lane.hpp"

namespace mercury::daemon {

/// Of each user, over all its connections.
struct Limits {
    std::size_t clients = 256;
    std::size_t jobs = 8;
    std::size_t layers = 16384;
    std::size_t sockets = 65536;      // that have been assigned
    std::uint32_t messages = 50'000;  // a second, of up to 256 bytes; longer ones count as several
};

/// What a user has, so that it can be limited, and where what it passes is handled.
class User {
  public:
    User(std::uint32_t number, const Limits& limits) : uid(number), limits_(limits) {}
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    const Limits& limits() const { return limits_; }

    /// When it may be heard again; it may owe what its last message cost. In the past: now.
    Clock::time_point may_speak_at(Clock::time_point now);
    /// Whether it has not so many descriptors with us that they could become ours to run out of.
    /// Once it has, half of them must go: all that wait for room are asked again when there is.
    bool has_room();
    void spend(std::size_t message_bytes);
    /// Has nothing, and as much credit as a new one: it can be forgotten.
    bool is_idle(Clock::time_point now);

    const std::uint32_t uid;
    std::size_t clients = 0;
    std::size_t jobs = 0;
    std::size_t layers = 0;
    std::size_t sockets = 0;
    std::size_t descriptors = 0;  // that are in its lane
    Lane lane;

  private:
    const Limits& limits_;
    bool full_ = false;
    double credit_ = 0;  // messages
    Clock::time_point credited_{};
};

}  // namespace mercury::daemon
