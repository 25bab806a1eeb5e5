// SPDX-License-Identifier: MIT
//
// One thread's event loop. Nothing in it ever polls busily: in virtual time the clock would stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "common/fd.hpp"
#include "common/result.hpp"

namespace mercury::replay {

using Clock = std::chrono::steady_clock;

class Reactor {
  public:
    /// Gets the EPOLL* bits that are due. An error ends run().
    using Handler = std::function<Result<void>(std::uint32_t events)>;

    Reactor();

    /// FD stays the caller's, who keeps it open for as long as run() may be called.
    Result<void> watch(int fd, std::uint32_t events, Handler handler);
    Result<void> change(int fd, std::uint32_t events);

    /// Until stop() or the first error.
    Result<void> run();
    void stop() { stopped_ = true; }

  private:
    Fd epoll_;
    std::unordered_map<int, Handler> handlers_;
    bool stopped_ = false;
};

/// A one-shot timer for a Reactor.
class Timer {
  public:
    Timer();

    Result<void> attach(Reactor& reactor, std::function<Result<void>()> expired);
    /// In the past means at once. Replaces an earlier time.
    Result<void> arm(Clock::time_point when);

  private:
    Fd fd_;
};

}  // namespace mercury::replay
