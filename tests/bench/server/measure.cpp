// SPDX-License-Identifier: MIT
#include "measure.hpp"

#include <cstdio>
#include <cstdlib>

#include <sched.h>

#include <fmt/format.h>

namespace mercury::bench {
namespace {

double seconds_of(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// What this process may use, before anything was pinned.
const cpu_set_t& processors() {
    static const cpu_set_t all = [] {
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof(set), &set) != 0)
            die("this process has no processors");
        return set;
    }();
    return all;
}

void pin_this_thread(bool to_the_first) {
    if (CPU_COUNT(&processors()) < 2)
        return;
    std::size_t first = 0;
    while (!CPU_ISSET(first, &processors()))
        ++first;
    cpu_set_t set = processors();
    if (to_the_first)
        CPU_ZERO(&set);
    if (to_the_first)
        CPU_SET(first, &set);
    else
        CPU_CLR(first, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        die("a thread cannot be given a processor");
}

}  // namespace

void die(const std::string& why) {
    fmt::print(stderr, "bench_server: {}\n", why);
    std::_Exit(EXIT_FAILURE);
}

Figures& Figures::operator+=(const Figures& other) {
    bytes += other.bytes;
    cpu += other.cpu;
    wall += other.wall;
    return *this;
}

Stopwatch::Stopwatch(pthread_t thread) {
    if (pthread_getcpuclockid(thread, &clock_) != 0)
        die("a thread has no clock");
    cpu_ = seconds_of(clock_);
    wall_ = seconds_of(CLOCK_MONOTONIC);
}

Figures Stopwatch::read(std::uint64_t bytes) const {
    return {bytes, seconds_of(clock_) - cpu_, seconds_of(CLOCK_MONOTONIC) - wall_};
}

std::thread measured_thread(const std::function<void()>& work) {
    return std::thread([work] {
        pin_this_thread(true);
        pthread_setname_np(pthread_self(), "measured");
        work();
    });
}

void make_room_for_measured_thread() {
    pin_this_thread(false);
}

std::vector<std::byte> touched(std::size_t bytes) {
    return std::vector<std::byte>(bytes, std::byte{0});
}

}  // namespace mercury::bench
