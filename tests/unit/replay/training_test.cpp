// SPDX-License-Identifier: MIT
//
// A worker and a server over loopback, on the real clock: what happens, not how fast.
#include <map>
#include <string>
#include <vector>

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "loopback.hpp"
#include "replay/experiment.hpp"
#include "replay/server.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

struct Hosts {
    Ends worker;
    Ends server;
};

void connect_over_loopback(std::vector<Fd>& worker, std::vector<Fd>& server) {
    auto [connected, accepted] = test::connection_over_loopback();
    worker.push_back(std::move(connected));
    server.push_back(std::move(accepted));
}

Hosts connected_hosts(std::size_t classes) {
    Hosts hosts;
    for (std::size_t i = 0; i < classes; ++i) {
        connect_over_loopback(hosts.worker.push, hosts.server.push);
        connect_over_loopback(hosts.worker.pull, hosts.server.pull);
    }
    return hosts;
}

const Profile small{
    "small", "", {{"a", 1ms, 2ms, 1}, {"b", 0ms, 1ms, 3'000'000}, {"c", 1ms, 1ms, 70'001}}};
const std::vector<std::size_t> two_classes{0, 1, 1};

/// Bytes by iteration and layer.
std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> sums(
    const std::vector<Arrival>& arrivals) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> bytes;
    for (const Arrival& arrival : arrivals)
        bytes[{arrival.message.iteration, arrival.message.layer}] += arrival.bytes;
    return bytes;
}

}  // namespace

TEST_CASE("every byte of every layer goes there and back in every iteration", "[training]") {
    const auto answer = GENERATE(Answer::whole_layers, Answer::at_once);
    Hosts hosts = connected_hosts(2);
    const auto log =
        train(small, two_classes, std::move(hosts.worker), std::move(hosts.server), answer, 3, -1);
    INFO((log ? "" : log.error().message));
    REQUIRE(log);
    const auto pushed = sums(log.value().pushed);
    const auto pulled = sums(log.value().worker.pulled);
    CHECK(pushed.size() == 9);
    CHECK(pushed == pulled);
    for (const auto& [key, bytes] : pulled)
        CHECK(bytes == small.layers[key.second].bytes);
}

TEST_CASE("the server answers when the layer is whole, or at once", "[training]") {
    // One layer, so that what comes back belongs to what was just sent.
    const Profile large{"large", "", {{"a", 0ms, 0ms, 30'000'000}}};
    const auto answer = GENERATE(Answer::whole_layers, Answer::at_once);
    Hosts hosts = connected_hosts(1);
    const auto log =
        train(large, {0}, std::move(hosts.worker), std::move(hosts.server), answer, 1, -1);
    REQUIRE(log);
    const auto last_push = log.value().pushed.back().when;
    const auto first_pull = log.value().worker.pulled.front().when;
    CHECK((first_pull < last_push) == (answer == Answer::at_once));
}

TEST_CASE("backward from the last layer, forward when parameters have come", "[training]") {
    Hosts hosts = connected_hosts(2);
    const auto log = train(small, two_classes, std::move(hosts.worker), std::move(hosts.server),
                           Answer::at_once, 2, -1);
    REQUIRE(log);
    const auto& iterations = log.value().worker.iterations;
    REQUIRE(iterations.size() == 2);
    CHECK(iterations[1].start == iterations[0].end);

    std::map<std::pair<std::uint32_t, std::uint32_t>, Clock::time_point> last;
    for (const Arrival& arrival : log.value().worker.pulled)
        last[{arrival.message.iteration, arrival.message.layer}] = arrival.when;
    for (std::uint32_t i = 0; i < 2; ++i) {
        const IterationLog& iteration = iterations[i];
        Clock::time_point expected = iteration.start;
        for (std::size_t layer = 3; layer-- > 0;) {
            CHECK(iteration.backward[layer].start == expected);
            expected += small.layers[layer].backward;
            CHECK(iteration.backward[layer].end == expected);
        }
        for (std::uint32_t layer = 0; layer < 3; ++layer) {
            CHECK(iteration.forward[layer].start == std::max(expected, last[{i + 1, layer}]));
            expected = iteration.forward[layer].start + small.layers[layer].forward;
            CHECK(iteration.forward[layer].end == expected);
        }
        CHECK(iteration.end == expected);
    }
}

TEST_CASE("an interrupt ends the training", "[training]") {
    const Profile slow{"slow", "", {{"a", 1h, 1h, 1}}};
    Hosts hosts = connected_hosts(1);
    const Fd interrupt(eventfd(1, EFD_CLOEXEC));
    const auto log = train(slow, {0}, std::move(hosts.worker), std::move(hosts.server),
                           Answer::at_once, 1, interrupt.get());
    REQUIRE_FALSE(log);
    CHECK(log.error().message == "interrupted");
}

TEST_CASE("the worker notices that the server is gone", "[training]") {
    Hosts hosts = connected_hosts(1);
    hosts.server = {};
    Worker worker(small, {0, 0, 0}, std::move(hosts.worker));
    const auto log = worker.train(1, -1);
    REQUIRE_FALSE(log);
    CHECK_THAT(log.error().message, Contains("the server"));
}

TEST_CASE("garbage is not taken for a layer", "[training]") {
    const std::string garbage =
        GENERATE(std::string(64, 'x'), std::string("MREY") + std::string(60, '\0'));
    Hosts hosts = connected_hosts(1);

    SECTION("by the worker") {
        REQUIRE(write(hosts.server.pull[0].get(), garbage.data(), garbage.size()) == 64);
        Worker worker(small, {0, 0, 0}, std::move(hosts.worker));
        const auto log = worker.train(1, -1);
        REQUIRE_FALSE(log);
        CHECK_THAT(log.error().message, Contains("the server sent something that is not a layer"));
    }
    SECTION("by the server") {
        REQUIRE(write(hosts.worker.push[0].get(), garbage.data(), garbage.size()) == 64);
        Server server(std::move(hosts.server), Answer::at_once);
        // It hangs up when it has seen what came.
        char byte = 0;
        CHECK(read(hosts.worker.push[0].get(), &byte, 1) <= 0);
        const auto log = server.stop();
        REQUIRE_FALSE(log);
        CHECK_THAT(log.error().message, Contains("the worker sent something that is not a layer"));
    }
}

TEST_CASE("bytes that were never sent are refused by the worker", "[training]") {
    // Magic, iteration, layer, bytes.
    const std::string forged = GENERATE(
        std::string{'M', 'R', 'E', 'Y', 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x'},
        std::string{'M', 'R', 'E', 'Y', 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 'x'},
        std::string{'M', 'R', 'E', 'Y', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 'x', 'x'});
    Hosts hosts = connected_hosts(1);
    REQUIRE(write(hosts.server.pull[0].get(), forged.data(), forged.size()) ==
            static_cast<ssize_t>(forged.size()));
    Worker worker(small, {0, 0, 0}, std::move(hosts.worker));
    const auto log = worker.train(1, -1);
    REQUIRE_FALSE(log);
    CHECK_THAT(log.error().message, Contains("which were never sent"));
}

TEST_CASE("a port that nobody listens at is an error with the address", "[training]") {
    Endpoint endpoint = test::loopback();
    endpoint.address.sin_port = htons(1);
    const auto connection = connect_to(endpoint);
    REQUIRE_FALSE(connection);
    CHECK_THAT(connection.error().message, Contains("cannot connect to 127.0.0.1:1"));
}
