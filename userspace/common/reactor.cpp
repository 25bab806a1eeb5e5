// SPDX-License-Identifier: MIT
#include "common/reactor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace mercury {

Reactor::Reactor() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Result<void> Reactor::control(int operation, int fd, std::uint32_t events, std::uint32_t number) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = std::uint64_t{number} << 32 | static_cast<std::uint32_t>(fd);
    if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
        return system_error("epoll_ctl");
    return {};
}

Result<void> Reactor::watch(int fd, std::uint32_t events, Handler handler, unsigned rank,
                            const void* group) {
    const std::uint32_t number = next_number_++;
    if (auto added = control(EPOLL_CTL_ADD, fd, events, number); !added)
        return added;
    watches_[fd] = std::make_shared<Watch>(Watch{std::move(handler), rank, group, number});
    return {};
}

Result<void> Reactor::change(int fd, std::uint32_t events) {
    const auto found = watches_.find(fd);
    return control(EPOLL_CTL_MOD, fd, events, found == watches_.end() ? 0 : found->second->number);
}

void Reactor::unwatch(int fd) {
    if (watches_.erase(fd) != 0)
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::shared_ptr<Reactor::Watch> Reactor::watch_of(std::uint64_t data) const {
    const auto found = watches_.find(static_cast<int>(data & 0xffffffff));
    if (found == watches_.end() || found->second->number != data >> 32)
        return nullptr;  // a handler before it has unwatched it
    return found->second;
}

Result<void> Reactor::run() {
    std::array<epoll_event, 256> due{};
    std::vector<std::pair<const void*, unsigned>> lowest;  // rank of what is due, by group
    const auto lowest_of = [&lowest](const Watch& watch) -> unsigned& {
        const auto found =
            std::ranges::find(lowest, watch.group, [](const auto& entry) { return entry.first; });
        return found != lowest.end() ? found->second
                                     : lowest.emplace_back(watch.group, watch.rank).second;
    };
    while (!stopped_) {
        const int count = epoll_wait(epoll_.get(), due.data(), due.size(), -1);
        if (count < 0) {
            if (errno == EINTR)
                continue;
            return system_error("epoll_wait");
        }
        const std::span ready(due.data(), static_cast<std::size_t>(count));
        lowest.clear();
        for (const auto& event : ready) {
            const auto watch = watch_of(event.data.u64);
            unsigned& rank = lowest_of(*watch);
            rank = std::min(rank, watch->rank);
        }
        for (const auto& event : ready) {
            // Kept alive: the handler may unwatch itself.
            const auto watch = watch_of(event.data.u64);
            if (!watch || watch->rank != lowest_of(*watch))
                continue;
            if (auto handled = watch->handler(event.events); !handled)
                return handled;
            if (stopped_)
                break;
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

}  // namespace mercury
