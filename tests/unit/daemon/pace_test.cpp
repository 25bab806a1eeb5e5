// SPDX-License-Identifier: MIT
#include "daemon/pace.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::daemon;
using namespace std::chrono_literals;

namespace {

/// Steps after each of the intervals.
Pace pace_of(std::initializer_list<Clock::duration> intervals, Clock::time_point& now) {
    Pace pace;
    pace.step(now);
    for (const auto interval : intervals) {
        now += interval;
        pace.step(now);
    }
    return pace;
}

}  // namespace

TEST_CASE("the interval is unknown before there are three", "[pace]") {
    Clock::time_point now{1h};
    CHECK_FALSE(Pace().interval());
    CHECK_FALSE(pace_of({10ms, 10ms}, now).interval());
    CHECK(pace_of({10ms, 12ms, 11ms}, now).interval() == 11ms);
}

TEST_CASE("a pause does not move the interval, a lasting change does", "[pace]") {
    Clock::time_point now{1h};
    Pace pace = pace_of({10ms, 10ms, 10ms, 10ms, 10ms, 60s, 10ms, 10ms, 10ms}, now);
    CHECK(pace.interval() == 10ms);
    for (int i = 0; i < 5; ++i) {
        now += 30ms;
        pace.step(now);
    }
    CHECK(pace.interval() == 30ms);
    CHECK(pace.steps() == 15);
}

TEST_CASE("who has announced steps and announces none any more is stale", "[pace]") {
    Clock::time_point now{1h};
    CHECK_FALSE(Pace().is_stale(now));
    Pace pace = pace_of({10ms, 10ms, 10ms}, now);
    CHECK_FALSE(pace.is_stale(now + 10s));
    CHECK(pace.is_stale(now + 10001ms));
    pace.step(now + 20s);
    CHECK_FALSE(pace.is_stale(now + 20s));

    Clock::time_point late{2h};
    const Pace slow = pace_of({5s, 5s, 5s}, late);
    CHECK_FALSE(slow.is_stale(late + 50s));
    CHECK(slow.is_stale(late + 51s));
}
