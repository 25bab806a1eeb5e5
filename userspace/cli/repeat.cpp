// SPDX-License-Identifier: MIT
#include "cli/repeat.hpp"

#include <algorithm>

#include <sys/epoll.h>

#include "common/interrupts.hpp"

namespace mercury::cli {

Result<void> repeat(Reactor& reactor, std::chrono::nanoseconds interval, std::uint64_t count,
                    const std::function<Result<void>()>& step) {
    const auto interrupt = interrupts();
    if (!interrupt)
        return interrupt.error();
    auto watched = reactor.watch(interrupt.value().get(), EPOLLIN, [&](std::uint32_t /*events*/) {
        reactor.stop();
        return Result<void>{};
    });
    if (!watched)
        return watched;

    Timer timer;
    Clock::time_point due = Clock::now();
    auto attached = timer.attach(reactor, [&]() -> Result<void> {
        if (auto done = step(); !done)
            return done;
        if (count != 0 && --count == 0) {
            reactor.stop();
            return {};
        }
        // In step with the first one, but one that was missed is not made up for.
        due = std::max(due + interval, Clock::now());
        return timer.arm(due);
    });
    if (!attached)
        return attached;
    if (auto armed = timer.arm(due); !armed)
        return armed;
    return reactor.run();
}

}  // namespace mercury::cli
