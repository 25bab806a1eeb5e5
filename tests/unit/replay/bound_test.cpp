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

TEST_CASE("co-located: each NIC carries (N - 1)/N of the model twice in each direction",
          "[bound]") {
    // Pushes to the other servers, and replies to the other workers.
    const Placement eight{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}};
    for (std::size_t host = 0; host < 8; ++host)
        CHECK(nic_bytes(8000, eight, host) == 14'000);
    CHECK(busiest_nic_bytes(8000, eight) == 14'000);
    CHECK(busiest_nic_bytes(8000, {{3, 5}, {3, 5}}) == 8000);
}

TEST_CASE("dedicated: a worker carries the model, a server its part for all workers", "[bound]") {
    const Placement even{{0, 1, 2, 3}, {4, 5, 6, 7}};
    CHECK(nic_bytes(8000, even, 0) == 8000);
    CHECK(nic_bytes(8000, even, 7) == 8000);
    const Placement few_servers{{0, 1, 2, 3}, {4, 5}};
    CHECK(nic_bytes(8000, few_servers, 0) == 8000);
    CHECK(nic_bytes(8000, few_servers, 4) == 16'000);
    CHECK(busiest_nic_bytes(8000, few_servers) == 16'000);
    CHECK(busiest_nic_bytes(8000, {{0}, {1, 2, 3, 4}}) == 8000);
}

TEST_CASE("some hosts both, some not; others carry nothing", "[bound]") {
    const Placement mixed{{0, 1}, {1, 2}};
    CHECK(nic_bytes(8000, mixed, 0) == 8000);  // all of its pushes
    CHECK(nic_bytes(8000, mixed, 1) == 8000);  // half of its pushes, one worker's replies
    CHECK(nic_bytes(8000, mixed, 2) == 8000);  // the replies to both workers
    CHECK(nic_bytes(8000, mixed, 3) == 0);
}

TEST_CASE("what an MTU carries", "[bound]") {
    CHECK(tcp_goodput(Rate{9014}, 9000) == Approx(8948));
    CHECK(wire_time(1448, Rate{1514 * 8}) == 1s);
}

TEST_CASE("a run with dips in the rate", "[bound]") {
    // 10 ms on the wire an iteration.
    const auto run = [](std::chrono::nanoseconds compute, std::vector<Dip> dips,
                        std::size_t iterations = 4) {
        return bound_of_run(compute, {{10ms, std::move(dips)}, {4ms, {}}}, iterations);
    };
    CHECK(run(1ms, {}) == 40ms);
    CHECK(run(15ms, {}) == 60ms);
    // A dip of 8 ms to a half costs 4 ms if the wire decides, and nothing if there is time left.
    CHECK(run(1ms, {{12ms, 8ms, 0.5}}) == 44ms);
    CHECK(run(15ms, {{12ms, 8ms, 0.5}}) == 60ms);
    CHECK(run(1ms, {{12ms, 8ms, 0.5}, {30ms, 4ms, 0.25}}) == 47ms);
    CHECK(run(1ms, {{0ms, 1s, 0.5}}) == 80ms);
    CHECK(run(1ms, {{35ms, 1s, 0.5}}) == 45ms);
    CHECK(run(1ms, {{40ms, 1s, 0.5}}) == 40ms);
    // Faster than full is possible, too.
    CHECK(run(1ms, {{0ms, 5ms, 2}}) == 35ms);
}
