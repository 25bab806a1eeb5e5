// SPDX-License-Identifier: MIT
#include "transport/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

using namespace mercury::transport;

namespace {

/// The first thing that is wrong with the parts of ELEMENTS at SERVERS.
std::string fault(std::size_t elements, std::size_t servers, std::size_t turn) {
    std::size_t next = 0;
    std::size_t smallest = SIZE_MAX;
    std::size_t largest = 0;
    for (std::size_t server = 0; server < servers; ++server) {
        const Part part = part_of(elements, server, servers, turn);
        if (part.first != next)
            return "a gap or an overlap";
        next += part.count;
        smallest = std::min(smallest, part.count);
        largest = std::max(largest, part.count);
    }
    if (next != elements)
        return "not all elements";
    return largest - smallest > 1 ? "unequal parts" : "";
}

}  // namespace

TEST_CASE("parts are disjoint, complete, in order and of equal size but for one element") {
    for (std::size_t servers = 1; servers <= 9; ++servers) {
        for (std::size_t elements = 1; elements <= 40; ++elements) {
            for (std::size_t turn = 0; turn <= 2 * servers; ++turn) {
                CAPTURE(servers, elements, turn);
                REQUIRE(fault(elements, servers, turn) == "");
            }
        }
    }
}

TEST_CASE("the rest goes to the servers from the turn on") {
    for (std::size_t servers = 1; servers <= 9; ++servers) {
        for (std::size_t elements = 1; elements <= 40; ++elements) {
            for (std::size_t turn = 0; turn < servers; ++turn) {
                std::set<std::size_t> larger;
                for (std::size_t i = 0; i < elements % servers; ++i)
                    larger.insert((turn + i) % servers);
                for (std::size_t server = 0; server < servers; ++server) {
                    CAPTURE(servers, elements, turn, server);
                    REQUIRE(part_of(elements, server, servers, turn).count ==
                            elements / servers + larger.count(server));
                }
            }
        }
    }
}

TEST_CASE("tensors of one element visit all servers in turn") {
    std::vector<int> count(5);
    for (std::size_t tensor = 0; tensor < 100; ++tensor) {
        for (std::size_t server = 0; server < 5; ++server)
            count[server] += static_cast<int>(part_of(1, server, 5, tensor).count);
    }
    REQUIRE(count == std::vector<int>(5, 20));
}

TEST_CASE("parts of the largest tensor are right, too") {
    REQUIRE(fault(SIZE_MAX, 7, 3) == "");
    REQUIRE(fault(SIZE_MAX, 1, SIZE_MAX) == "");
}
