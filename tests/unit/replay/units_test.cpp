// SPDX-License-Identifier: MIT
#include "common/units.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("rates are read as tc reads them", "[units]") {
    const auto [text, bits] = GENERATE(table<const char*, std::uint64_t>({
        {"10gbit", 10'000'000'000},
        {"10Gbit", 10'000'000'000},
        {"2.5gbit", 2'500'000'000},
        {"100mbit", 100'000'000},
        {"64kbit", 64'000},
        {"1tbit", 1'000'000'000'000},
        {"1gibit", 1'073'741'824},
        {"1250mbps", 10'000'000'000},
        {"1bps", 8},
        {"5000", 5'000},
        {"1bit", 1},
        {"10tbit", 10'000'000'000'000},
    }));
    INFO(text);
    const auto rate = parse_rate(text);
    REQUIRE(rate);
    CHECK(rate.value().bits_per_second == bits);
}

TEST_CASE("a rate that is none is refused with its text and an example", "[units]") {
    const auto* const text = GENERATE("", "gbit", "10gigs", "10 gbit", "-1gbit", "nan", "inf",
                                      "0x10gbit", "1e3gbit", "10gbit ", "ten");
    INFO(text);
    const auto rate = parse_rate(text);
    REQUIRE_FALSE(rate);
    CHECK_THAT(rate.error().message, Contains(std::string("\"") + text + "\""));
    CHECK_THAT(rate.error().message, Contains("10gbit"));
}

TEST_CASE("a rate out of range is refused", "[units]") {
    const auto* const text = GENERATE("0", "0gbit", "0.1bit", "11tbit", "99999999999999999999gbit");
    INFO(text);
    const auto rate = parse_rate(text);
    REQUIRE_FALSE(rate);
    CHECK_THAT(rate.error().message, Contains("out of range"));
}

TEST_CASE("times are read as tc reads them", "[units]") {
    const auto [text, time] = GENERATE(table<const char*, std::chrono::nanoseconds>({
        {"25us", 25us},
        {"25usec", 25us},
        {"25", 25us},
        {"1.5ms", 1500us},
        {"2s", 2s},
        {"2sec", 2s},
        {"100ns", 100ns},
        {"0", 0ns},
        {"0ms", 0ns},
        {"3600s", 3600s},
    }));
    INFO(text);
    const auto parsed = parse_time(text);
    REQUIRE(parsed);
    CHECK(parsed.value() == time);
}

TEST_CASE("a time that is none is refused with its text", "[units]") {
    const auto* const text = GENERATE("", "us", "25 us", "-25us", "nan", "25minutes", "3601s");
    INFO(text);
    const auto time = parse_time(text);
    REQUIRE_FALSE(time);
    CHECK_THAT(time.error().message, Contains(std::string("\"") + text + "\""));
}

TEST_CASE("rates and times are written so that they are read back unchanged", "[units]") {
    for (const std::uint64_t bits :
         {1ULL, 999ULL, 1'500ULL, 64'000ULL, 2'500'000'000ULL, 10'000'000'000ULL}) {
        const auto rate = parse_rate(to_string(Rate{bits}));
        REQUIRE(rate);
        CHECK(rate.value() == Rate{bits});
    }
    for (const std::chrono::nanoseconds time :
         {0ns, 1ns, 1500ns, 25000ns, 1500000ns, 2000000000ns}) {
        const auto parsed = parse_time(time_to_string(time));
        REQUIRE(parsed);
        CHECK(parsed.value() == time);
    }
    CHECK(to_string(Rate{10'000'000'000}) == "10gbit");
    CHECK(to_string(Rate{2'500'000'000}) == "2500mbit");
    CHECK(time_to_string(25us) == "25us");
}

TEST_CASE("sizes are read as tc writes them", "[units]") {
    const auto [text, bytes] = GENERATE(table<std::string, std::uint64_t>({
        {"0", 0},
        {"160000", 160'000},
        {"512b", 512},
        {"64kb", 65'536},
        {"64KB", 65'536},
        {"4m", 4'194'304},
        {"1gb", 1'073'741'824},
        {"3KiB", 3'072},
        {"2MiB", 2'097'152},
        {"16GiB", 17'179'869'184},
    }));
    const auto parsed = parse_bytes(text);
    REQUIRE(parsed);
    CHECK(parsed.value() == bytes);
    CHECK(parse_bytes(bytes_to_string(bytes)).value() == bytes);
}

TEST_CASE("what is no size is refused", "[units]") {
    const std::string text = GENERATE("", "kb", "-1", "1.5mb", "1 kb", "1tb", "18014398509481984kb",
                                      "99999999999999999999");
    const auto parsed = parse_bytes(text);
    REQUIRE_FALSE(parsed);
    CHECK_THAT(parsed.error().message, Contains('"' + text + '"'));
}
