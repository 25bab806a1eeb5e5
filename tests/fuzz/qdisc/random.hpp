// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace fuzz {

/// Everything random comes from one of these, so that a seed repeats it.
class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}

    /// From 0 to below `bound`.
    std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
    std::uint64_t between(std::uint64_t low, std::uint64_t high) {
        return high - low == UINT64_MAX ? engine_() : low + below(high - low + 1);
    }
    /// As often small as large: all magnitudes are alike.
    std::uint64_t magnitude(std::uint64_t low, std::uint64_t high) {
        const std::uint64_t reduced = between(low, high) >> below(64);
        return reduced < low ? low : reduced;
    }
    bool chance(unsigned per_cent) { return below(100) < per_cent; }
    template <typename T, std::size_t size>
    const T& pick(const T (&from)[size]) {
        return from[below(size)];
    }
    template <typename T>
    const T& pick(std::span<const T> from) {
        return from[below(from.size())];
    }

  private:
    std::mt19937_64 engine_;
};

}  // namespace fuzz
