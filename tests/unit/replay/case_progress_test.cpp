// SPDX-License-Identifier: MIT
#include "replay/case_progress.hpp"

#include <array>

#include <catch2/catch.hpp>

using namespace mercury::replay;
using Catch::Matchers::Contains;

namespace {

/// What FUNCTION prints into a file.
template <typename Function>
std::string printed(Function function) {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    function(file);
    std::rewind(file);
    std::array<char, 4096> buffer{};
    const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file);
    std::fclose(file);
    return {buffer.data(), got};
}

}  // namespace

TEST_CASE("durations for people", "[progress]") {
    CHECK(duration_for_people(-1) == "0 s");
    CHECK(duration_for_people(0.4) == "0 s");
    CHECK(duration_for_people(99.4) == "99 s");
    CHECK(duration_for_people(99.6) == "2 min");
    CHECK(duration_for_people(240) == "4 min");
    CHECK(duration_for_people(99 * 60) == "99 min");
    CHECK(duration_for_people(80 * 60 + 3600) == "2 h 20 min");
}

TEST_CASE("elsewhere than on a terminal there is a line for each case", "[progress]") {
    const auto text = printed([](std::FILE* out) {
        ProgressLine progress(out, false, 2, 40);
        progress.begin("first", 20);
        progress.update("run 1 of 1", 0.5, 30);
        progress.end("5 ms", 60);
        progress.begin("second", 20);
        progress.end("6 ms", 120);
    });
    // The first case took three times as long as expected, so will the second.
    CHECK(text == "[1/2] first: 5 ms; 60 s left\n[2/2] second: 6 ms\n");
}

TEST_CASE("on a terminal the line is written over", "[progress]") {
    const auto text = printed([](std::FILE* out) {
        ProgressLine progress(out, true, 1, 20);
        progress.begin("first", 20);
        progress.update("run 1 of 2", 0.25, 10);
        progress.end("5 ms", 40);
    });
    CHECK(text == "\r\033[K[1/1] first: run 1 of 2; 30 s left\r\033[K[1/1] first: 5 ms\n");
}

TEST_CASE("before there is anything to go by the estimate is the expectation", "[progress]") {
    const auto text = printed([](std::FILE* out) {
        ProgressLine progress(out, true, 1, 50);
        progress.begin("first", 50);
        progress.update("run 1 of 2", 0, 9);
    });
    CHECK_THAT(text, Contains("50 s left"));
}

TEST_CASE("the clock on the wall goes forward and leaves no file behind", "[progress]") {
    const std::string scratch = std::string(std::tmpnam(nullptr)) + ".mercury-clock";
    const WallClock clock(true, scratch);
    const double before = clock.seconds();
    CHECK(before > 1e9);  // seconds since 1970: a file's time stamp
    CHECK(clock.seconds() >= before);
    std::FILE* const left = std::fopen(scratch.c_str(), "r");
    CHECK(left == nullptr);
}
