// SPDX-License-Identifier: MIT
//
// How much a thread does in how much of its CPU time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <pthread.h>
#include <time.h>

#include "common/result.hpp"

namespace mercury::bench {

[[noreturn]] void die(const std::string& why);

/// A measurement has no use for an error but to end.
template <typename T>
T need(Result<T> result) {
    if (!result)
        die(result.error().message);
    if constexpr (!std::is_void_v<T>)
        return std::move(result).value();
}

struct Figures {
    std::uint64_t bytes = 0;  // that came in, or were copied
    double cpu = 0;           // seconds of the thread that did it
    double wall = 0;          // seconds

    Figures& operator+=(const Figures& other);
};

/// Runs from its construction on.
class Stopwatch {
  public:
    explicit Stopwatch(pthread_t thread);
    Figures read(std::uint64_t bytes) const;

  private:
    clockid_t clock_ = 0;
    double cpu_ = 0;
    double wall_ = 0;
};

/// On a processor of its own, the first that there is, as far as there are two. All other threads
/// are elsewhere: who sends would otherwise take turns with who receives.
std::thread measured_thread(const std::function<void()>& work);
void make_room_for_measured_thread();

/// Memory that is there, not only promised.
std::vector<std::byte> touched(std::size_t bytes);

}  // namespace mercury::bench
