// SPDX-License-Identifier: MIT
#include "replay/bound.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;

TEST_CASE("goodput is what a frame of 1514 bytes carries", "[bound]") {
    // The figure that bulk TCP reaches in the test bed: 9.56 to 9.57 Gbit/s.
    CHECK(tcp_goodput(Rate{10'000'000'000}) == Approx(9.564e9).epsilon(0.0001));
}

TEST_CASE("the bound is the longer of compute and wire", "[bound]") {
    // 1448 bytes at 1514 * 8 bit/s take one second.
    const Rate rate{1514 * 8};
    const Profile wire_bound{"w", "", {{"a", 200ms, 300ms, 1448}, {"b", 50ms, 100ms, 1448}}};
    const Bound wire = bound_of(wire_bound, rate);
    CHECK(wire.compute == 650ms);
    CHECK(wire.wire == 2s);
    CHECK(wire.total() == 2s);

    const Profile compute_bound{"c", "", {{"a", 1500ms, 3s, 1448}}};
    const Bound compute = bound_of(compute_bound, rate);
    CHECK(compute.wire == 1s);
    CHECK(compute.total() == 4500ms);
}
