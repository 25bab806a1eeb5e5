// SPDX-License-Identifier: MIT
#include "common/units.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace mercury {
namespace {

struct Unit {
    std::string_view name;  // lower case
    double factor;
};

// The units of tc(8), bits a second.
constexpr std::array rate_units{
    Unit{"", 1},           Unit{"bit", 1},        Unit{"kbit", 1e3},     Unit{"mbit", 1e6},
    Unit{"gbit", 1e9},     Unit{"tbit", 1e12},    Unit{"kibit", 1024.0}, Unit{"mibit", 1048576.0},
    Unit{"gibit", 0x1p30}, Unit{"tibit", 0x1p40}, Unit{"bps", 8},        Unit{"kbps", 8e3},
    Unit{"mbps", 8e6},     Unit{"gbps", 8e9},     Unit{"tbps", 8e12},    Unit{"kibps", 8 * 1024.0},
    Unit{"mibps", 0x1p23}, Unit{"gibps", 0x1p33}, Unit{"tibps", 0x1p43},
};

// The units of tc(8), nanoseconds.
constexpr std::array time_units{
    Unit{"", 1e3},     Unit{"us", 1e3},    Unit{"usec", 1e3}, Unit{"usecs", 1e3}, Unit{"ms", 1e6},
    Unit{"msec", 1e6}, Unit{"msecs", 1e6}, Unit{"s", 1e9},    Unit{"sec", 1e9},   Unit{"secs", 1e9},
    Unit{"ns", 1},     Unit{"nsec", 1},    Unit{"nsecs", 1},
};

struct ByteUnit {
    std::string_view name;  // lower case
    unsigned shift;
};

// The units of tc(8), and the names that do not leave open which thousand is meant.
constexpr std::array byte_units{
    ByteUnit{"", 0},     ByteUnit{"b", 0},    ByteUnit{"k", 10},   ByteUnit{"kb", 10},
    ByteUnit{"m", 20},   ByteUnit{"mb", 20},  ByteUnit{"g", 30},   ByteUnit{"gb", 30},
    ByteUnit{"kib", 10}, ByteUnit{"mib", 20}, ByteUnit{"gib", 30},
};

constexpr double rate_max = 1e13;    // bit/s: what sch_mercury takes at most
constexpr double time_max = 3.6e12;  // ns: one hour

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

/// A non-negative number directly followed by one of UNITS, in the smallest unit.
std::optional<double> parse_with_unit(std::string_view text, std::span<const Unit> units) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, failure] =
        std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (failure != std::errc{} || !std::isfinite(number) || number < 0)
        return std::nullopt;

    const std::string unit = lower_case({rest, end});
    const auto found = std::find_if(units.begin(), units.end(),
                                    [&](const Unit& candidate) { return candidate.name == unit; });
    if (found == units.end())
        return std::nullopt;
    return number * found->factor;
}

}  // namespace

Result<Rate> parse_rate(std::string_view text) {
    const auto bits = parse_with_unit(text, rate_units);
    if (!bits) {
        return Error{
            fmt::format("rate \"{}\" is not a number with a unit of bit, kbit, mbit, gbit or tbit "
                        "(bits a second) "
                        "or bps, kbps, mbps, gbps or tbps (bytes a second), such as 10gbit",
                        text)};
    }
    if (*bits < 1 || *bits > rate_max)
        return Error{fmt::format("rate \"{}\" is out of range: 1bit to 10tbit", text)};
    return Rate{static_cast<std::uint64_t>(std::llround(*bits))};
}

Result<std::chrono::nanoseconds> parse_time(std::string_view text) {
    const auto ns = parse_with_unit(text, time_units);
    if (!ns) {
        return Error{fmt::format(
            "time \"{}\" is not a number with a unit of s, ms, us or ns, such as 25us", text)};
    }
    if (*ns > time_max)
        return Error{fmt::format("time \"{}\" is out of range: 0 to 3600s", text)};
    return std::chrono::nanoseconds(std::llround(*ns));
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, number);
    const std::string unit = lower_case({rest, end});
    const auto* const found =
        std::find_if(byte_units.begin(), byte_units.end(),
                     [&](const ByteUnit& candidate) { return candidate.name == unit; });
    if (failure != std::errc{} || found == byte_units.end() ||
        number > std::numeric_limits<std::uint64_t>::max() >> found->shift)
        return Error{fmt::format(
            "size \"{}\" is not a whole number of bytes, kb, mb or gb (1kb is 1024)", text)};
    return number << found->shift;
}

std::string to_string(Rate rate) {
    constexpr std::array<std::pair<std::uint64_t, const char*>, 3> steps{
        {{1'000'000'000, "gbit"}, {1'000'000, "mbit"}, {1'000, "kbit"}}};
    for (const auto& [factor, unit] : steps) {
        if (rate.bits_per_second % factor == 0)
            return fmt::format("{}{}", rate.bits_per_second / factor, unit);
    }
    return fmt::format("{}bit", rate.bits_per_second);
}

std::string time_to_string(std::chrono::nanoseconds time) {
    constexpr std::array<std::pair<std::int64_t, const char*>, 3> steps{
        {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}}};
    for (const auto& [factor, unit] : steps) {
        if (time.count() % factor == 0)
            return fmt::format("{}{}", time.count() / factor, unit);
    }
    return fmt::format("{}ns", time.count());
}

std::string bytes_to_string(std::uint64_t bytes) {
    constexpr std::array<std::pair<unsigned, const char*>, 3> steps{
        {{30, "gb"}, {20, "mb"}, {10, "kb"}}};
    for (const auto& [shift, name] : steps) {
        if (bytes != 0 && bytes % (std::uint64_t{1} << shift) == 0)
            return fmt::format("{}{}", bytes >> shift, name);
    }
    return fmt::format("{}", bytes);
}

}  // namespace mercury
