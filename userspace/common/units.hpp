// SPDX-License-Identifier: MIT
//
// Rates, times and sizes as tc(8) writes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.hpp"

namespace mercury {

struct Rate {
    std::uint64_t bits_per_second = 0;

    friend bool operator==(const Rate&, const Rate&) = default;
};

/// "10gbit", "2.5gbit", "1250mbps" (bytes), "10000000000" (bits). Never zero.
Result<Rate> parse_rate(std::string_view text);

/// "25us", "1.5ms", "2s", "100ns"; a bare number means microseconds. Zero is allowed.
Result<std::chrono::nanoseconds> parse_time(std::string_view text);

/// "160000", "64kb", "4MiB": a whole number; 1kb = 1KiB = 1024 bytes, as everywhere in tc.
Result<std::uint64_t> parse_bytes(std::string_view text);

/// The shortest exact form that tc and parse_rate() read.
std::string to_string(Rate rate);

/// The shortest exact form that tc and parse_time() read.
std::string time_to_string(std::chrono::nanoseconds time);

/// The shortest exact form that tc and parse_bytes() read.
std::string bytes_to_string(std::uint64_t bytes);

/// Milliseconds for people, tables and JSON.
constexpr double to_ms(std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace mercury
