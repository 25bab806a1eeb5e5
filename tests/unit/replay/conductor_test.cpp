// SPDX-License-Identifier: MIT
#include "replay/conductor.hpp"

#include <thread>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;

namespace {

const Clock::time_point zero = Clock::time_point{} + 1h;

TrainedIteration ended(Clock::time_point end) {
    TrainedIteration log;
    log.end = end;
    return log;
}

using Times = std::vector<std::pair<std::chrono::nanoseconds, std::chrono::nanoseconds>>;

Times times_of(const std::vector<JobIteration>& iterations) {
    Times times;
    for (const JobIteration& iteration : iterations)
        times.emplace_back(iteration.start - zero, iteration.end - zero);
    return times;
}

}  // namespace

TEST_CASE("one job: warm-up, then what is measured, and no more", "[conductor]") {
    Conductor conductor({2}, 1, 2, zero);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(conductor.proceed(0, i));
        CHECK(conductor.proceed(0, i));
        conductor.finished(0, 1, i, ended(zero + (10ms * (i + 1))));
        // The first worker may begin the next one before the second has ended this one.
        CHECK(conductor.proceed(0, i + 1) == (i < 2));
        conductor.finished(0, 0, i, ended(zero + (10ms * (i + 1)) + 1ms));
    }
    CHECK_FALSE(conductor.proceed(0, 3));
    CHECK(conductor.wait_for_warm_up(0ns) == Conductor::Wait::reached);
    CHECK(conductor.wait_for_end(0ns) == Conductor::Wait::reached);
    CHECK(conductor.measured_from() == zero + 11ms);
    CHECK(conductor.measured_until() == zero + 31ms);
    CHECK(times_of(conductor.measured(0)) == Times{{11ms, 21ms}, {21ms, 31ms}});
    CHECK(conductor.log(0).size() == 2);
    CHECK(conductor.log(0).front().end == zero + 21ms);
}

TEST_CASE("without a warm-up everything is measured", "[conductor]") {
    Conductor conductor({1}, 0, 1, zero);
    CHECK(conductor.measured_from() == zero);
    REQUIRE(conductor.proceed(0, 0));
    conductor.finished(0, 0, 0, ended(zero + 5ms));
    CHECK_FALSE(conductor.proceed(0, 1));
    CHECK(times_of(conductor.measured(0)) == Times{{0ms, 5ms}});
}

TEST_CASE("a quick job trains on while a slow one is measured", "[conductor]") {
    // 10 ms and 35 ms an iteration; one to warm up, two to measure.
    Conductor conductor({1, 1}, 1, 2, zero);
    const std::array period{10ms, 35ms};
    std::array<std::size_t, 2> done{};
    std::array<bool, 2> runs{true, true};
    for (auto now = 5ms; now <= 200ms; now += 5ms) {
        for (std::size_t job = 0; job < 2; ++job) {
            if (!runs[job] || now % period[job] != 0ms)
                continue;
            REQUIRE(conductor.proceed(job, done[job]));
            conductor.finished(job, 0, done[job], ended(zero + now));
            runs[job] = conductor.proceed(job, ++done[job]);
        }
    }
    CHECK_FALSE(runs[0]);
    CHECK_FALSE(runs[1]);
    // Both are warm at 35 ms; the slow one needs until 105 ms and does nothing behind that.
    CHECK(conductor.measured_from() == zero + 35ms);
    CHECK(conductor.measured_until() == zero + 105ms);
    CHECK(done[1] == 3);
    CHECK(times_of(conductor.measured(1)) == Times{{35ms, 70ms}, {70ms, 105ms}});
    // What the quick one did at 35 ms had begun before.
    CHECK(
        times_of(conductor.measured(0)) ==
        Times{{40ms, 50ms}, {50ms, 60ms}, {60ms, 70ms}, {70ms, 80ms}, {80ms, 90ms}, {90ms, 100ms}});
    CHECK(done[0] == 11);
    CHECK(conductor.log(0).size() == 6);
    CHECK(conductor.log(0).front().end == zero + 50ms);
}

TEST_CASE("who waits learns that nobody makes progress, or that all is lost", "[conductor]") {
    Conductor conductor({1}, 1, 1, zero);
    CHECK(conductor.wait_for_warm_up(1ms) == Conductor::Wait::stalled);
    CHECK_FALSE(conductor.abandoned());
    CHECK(conductor.runs_until(Clock::now()));
    std::thread other([&] { conductor.abandon(); });
    CHECK(conductor.wait_for_warm_up(1h) == Conductor::Wait::reached);
    other.join();
    CHECK(conductor.abandoned());
    CHECK_FALSE(conductor.proceed(0, 0));
    CHECK_FALSE(conductor.runs_until(Clock::now() + 1h));
}
