// SPDX-License-Identifier: MIT
//
// One thread's event loop. Nothing in it ever polls busily: in virtual time the clock would stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "common/fd.hpp"
#include "common/result.hpp"

namespace mercury {

using Clock = std::chrono::steady_clock;

class Reactor {
  public:
    /// Gets the EPOLL* bits that are due. An error ends run().
    using Handler = std::function<Result<void>(std::uint32_t events)>;

    Reactor();

    /// FD stays the caller's, who calls unwatch() before closing it if run() goes on.
    ///
    /// While a descriptor of lower RANK is ready, none of a higher one of the same GROUP is served.
    /// Groups take turns, so that none can keep another from being served. A handler that has much
    /// to do should do some of it and return: it is called again.
    Result<void> watch(int fd, std::uint32_t events, Handler handler, unsigned rank = 0,
                       const void* group = nullptr);
    /// An error if FD is not watched.
    Result<void> change(int fd, std::uint32_t events);
    /// Also from within a handler, its own or another's.
    void unwatch(int fd);

    /// Until stop() or the first error.
    Result<void> run();
    void stop() { stopped_ = true; }

  private:
    struct Watch {
        Handler handler;
        unsigned rank = 0;
        const void* group = nullptr;
        std::uint32_t number = 0;  // tells it from an earlier watch of the same descriptor
    };

    Result<void> control(int operation, int fd, std::uint32_t events, std::uint32_t number);
    std::shared_ptr<Watch> watch_of(std::uint64_t data) const;

    Fd epoll_;
    std::unordered_map<int, std::shared_ptr<Watch>> watches_;
    std::uint32_t next_number_ = 0;
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

}  // namespace mercury
