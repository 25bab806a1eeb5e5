// SPDX-License-Identifier: MIT
#include "replay/reactor.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace mercury::replay {
namespace {

Result<void> control(const Fd& epoll, int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(epoll.get(), operation, fd, &event) != 0)
        return system_error("epoll_ctl");
    return {};
}

}  // namespace

Reactor::Reactor() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Result<void> Reactor::watch(int fd, std::uint32_t events, Handler handler) {
    if (auto added = control(epoll_, EPOLL_CTL_ADD, fd, events); !added)
        return added;
    handlers_.insert_or_assign(fd, std::move(handler));
    return {};
}

Result<void> Reactor::change(int fd, std::uint32_t events) {
    return control(epoll_, EPOLL_CTL_MOD, fd, events);
}

Result<void> Reactor::run() {
    std::array<epoll_event, 64> due{};
    while (!stopped_) {
        const int count = epoll_wait(epoll_.get(), due.data(), due.size(), -1);
        if (count < 0) {
            if (errno == EINTR)
                continue;
            return system_error("epoll_wait");
        }
        for (int i = 0; i < count && !stopped_; ++i) {
            const auto& event = due.at(static_cast<std::size_t>(i));
            if (auto handled = handlers_.at(event.data.fd)(event.events); !handled)
                return handled;
        }
    }
    return {};
}

// CLOCK_MONOTONIC is the clock of std::chrono::steady_clock in libstdc++.
Timer::Timer() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

Result<void> Timer::attach(Reactor& reactor, std::function<Result<void>()> expired) {
    return reactor.watch(
        fd_.get(), EPOLLIN,
        [fd = fd_.get(), expired = std::move(expired)](std::uint32_t /*events*/) -> Result<void> {
            std::uint64_t expirations = 0;
            if (read(fd, &expirations, sizeof(expirations)) < 0) {
                if (errno == EAGAIN)  // re-armed since it became due
                    return {};
                return system_error("timerfd");
            }
            return expired();
        });
}

Result<void> Timer::arm(Clock::time_point when) {
    const auto ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
    itimerspec spec{};
    spec.it_value.tv_sec = ns / 1'000'000'000;
    spec.it_value.tv_nsec = ns % 1'000'000'000;
    if (timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) != 0)
        return system_error("timerfd_settime");
    return {};
}

}  // namespace mercury::replay
