// SPDX-License-Identifier: MIT
//
// Who goes next: one node of a strategy, whose peers are played by the test. The node runs on a
// thread of its own only once it has been told everything, so that nothing depends on timing.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <catch2/catch.hpp>

#include "common/reactor.hpp"
#include "replay/strategy_ps.hpp"
#include "strategy_test_rig.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace mercury::replay::test;
using namespace std::chrono_literals;

namespace {

/// Runs a node's event loop on a thread.
class Running {
  public:
    Running(std::unique_ptr<Node> node, std::unique_ptr<Reactor> reactor)
        : node_(std::move(node)), reactor_(std::move(reactor)) {
        const auto watched =
            reactor_->watch(stop_.get(), EPOLLIN, [this](std::uint32_t) -> Result<void> {
                reactor_->stop();
                return {};
            });
        REQUIRE(watched);
        thread_ = std::thread([this] { static_cast<void>(reactor_->run()); });
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() {
        eventfd_write(stop_.get(), 1);
        thread_.join();
    }

  private:
    std::unique_ptr<Node> node_;
    std::unique_ptr<Reactor> reactor_;
    Fd stop_{eventfd(0, EFD_CLOEXEC)};
    std::thread thread_;
};

/// A worker under test; the test is its only server.
struct WorkerUnderTest {
    WorkerUnderTest(const Profile& profile, const PsPolicy& policy)
        : plan(std::make_shared<const Plan>(policy.slice == 0
                                                ? Plan::shards(profile, 1)
                                                : Plan::slices(profile, 1, policy.slice))) {
        Ends ends;
        Sockets push = connected_sockets();
        Sockets pull = connected_sockets();
        ends.push.push_back(std::move(push.node));
        ends.pull.push_back(std::move(pull.node));
        push_socket = std::move(push.test);
        pull_socket = std::move(pull.test);
        node = std::make_unique<PsWorker>(profile, plan, policy, std::move(ends),
                                          std::make_shared<Progress>(profile));
        REQUIRE(node->attach(*reactor));
    }

    void push(const std::vector<std::size_t>& layers) {
        for (const std::size_t layer : layers)
            REQUIRE(node->push(layer));
    }

    Running run() { return {std::move(node), std::move(reactor)}; }

    /// The layers of the next COUNT messages.
    std::vector<std::uint32_t> read_layers(std::size_t count) {
        std::vector<std::uint32_t> layers;
        while (layers.size() < count)
            layers.push_back(plan->chunks().at(read_message(push_socket).layer).layer);
        return layers;
    }

    void acknowledge(std::uint32_t chunk) { write_message(push_socket, {1, chunk, 1}); }

    std::shared_ptr<const Plan> plan;
    std::unique_ptr<Reactor> reactor = std::make_unique<Reactor>();
    std::unique_ptr<Node> node;
    Fd push_socket;
    Fd pull_socket;
};

/// A server under test; the test is its workers.
struct ServerUnderTest {
    ServerUnderTest(const Profile& profile, const PsPolicy& policy, std::size_t workers)
        : plan(std::make_shared<const Plan>(Plan::shards(profile, 1))) {
        Ends ends;
        for (std::size_t worker = 0; worker < workers; ++worker) {
            Sockets to = connected_sockets();
            Sockets from = connected_sockets();
            ends.push.push_back(std::move(to.node));
            ends.pull.push_back(std::move(from.node));
            push.push_back(std::move(to.test));
            pull.push_back(std::move(from.test));
        }
        node = std::make_unique<PsServer>(plan, policy, 0, std::move(ends));
        REQUIRE(node->attach(*reactor));
    }

    Running run() { return {std::move(node), std::move(reactor)}; }

    void deliver(std::size_t worker, std::uint32_t layer, std::uint32_t iteration = 1) {
        write_message(push[worker], {iteration, layer, plan->chunks().at(layer).bytes});
    }

    std::vector<std::uint32_t> read_layers(std::size_t worker, std::size_t count) {
        std::vector<std::uint32_t> layers;
        while (layers.size() < count)
            layers.push_back(read_message(pull[worker]).layer);
        return layers;
    }

    std::shared_ptr<const Plan> plan;
    std::unique_ptr<Reactor> reactor = std::make_unique<Reactor>();
    std::unique_ptr<Node> node;
    std::vector<Fd> push;  // by worker
    std::vector<Fd> pull;
};

using Layers = std::vector<std::uint32_t>;
constexpr std::uint64_t kb = 1024;

}  // namespace

TEST_CASE("in ready order whole layers go as they were pushed", "[strategy]") {
    const Profile profile = profile_of({10 * kb, 20 * kb, 30'000 * kb, 40 * kb});
    WorkerUnderTest worker(profile, {});
    worker.push({3, 2, 1, 0});
    const Running running = worker.run();
    CHECK(worker.read_layers(4) == Layers{3, 2, 1, 0});
}

TEST_CASE("in late-bound priority order one slice at most is ahead of its betters", "[strategy]") {
    // Layer 3 alone is ready at first: its first slice is on its way when the others come.
    const Profile profile = profile_of({100 * kb, 1, 150 * kb, 400 * kb});
    PsPolicy policy;
    policy.slice = 100 * kb;
    policy.push = {.order = Order::priority, .late = true};
    WorkerUnderTest worker(profile, policy);
    worker.push({3, 2, 1, 0});
    const Running running = worker.run();
    CHECK(worker.read_layers(8) == Layers{3, 0, 1, 2, 2, 3, 3, 3});
}

TEST_CASE("whoever may cut a chunk chooses again after each piece", "[strategy]") {
    const Profile profile = profile_of({100 * kb, 300 * kb});
    PsPolicy policy;
    policy.push = {.order = Order::priority, .late = true, .piece = 64 * kb};
    WorkerUnderTest worker(profile, policy);
    worker.push({1, 0});
    const Running running = worker.run();
    Layers layers;
    std::vector<std::uint64_t> sizes;
    for (int i = 0; i < 7; ++i) {
        const Message message = read_message(worker.push_socket);
        layers.push_back(message.layer);
        sizes.push_back(message.bytes / kb);
    }
    CHECK(layers == Layers{1, 0, 0, 1, 1, 1, 1});
    CHECK(sizes == std::vector<std::uint64_t>{64, 64, 36, 64, 64, 64, 44});
}

TEST_CASE("credit bounds what the server has not acknowledged", "[strategy]") {
    // Two slices of credit: what is pushed later and is more urgent goes as soon as one is
    // acknowledged, which it could not if more than two had left.
    const Profile profile = profile_of({200 * kb, 1, 400 * kb});
    PsPolicy policy;
    policy.slice = 100 * kb;
    policy.push = {.order = Order::priority, .credit = 200 * kb};
    WorkerUnderTest worker(profile, policy);
    worker.push({2, 1, 0});  // chunks 0 and 1 are layer 0, chunk 2 is layer 1
    const Running running = worker.run();
    CHECK(worker.read_layers(2) == Layers{2, 2});
    worker.acknowledge(3);
    CHECK(worker.read_layers(1) == Layers{0});
    worker.acknowledge(4);
    CHECK(worker.read_layers(1) == Layers{0});
    worker.acknowledge(0);
    // The small one leaves room for no other.
    CHECK(worker.read_layers(1) == Layers{1});
    worker.acknowledge(1);
    CHECK(worker.read_layers(1) == Layers{2});
    worker.acknowledge(2);
    worker.acknowledge(5);
    CHECK(worker.read_layers(1) == Layers{2});
}

TEST_CASE("in flight never exceeds the credit", "[strategy]") {
    const Profile profile = profile_of({1'000 * kb, 3, 777 * kb, 2'000 * kb});
    PsPolicy policy;
    policy.slice = 50 * kb;
    policy.push = {.order = Order::priority, .credit = 160 * kb};
    WorkerUnderTest worker(profile, policy);
    worker.push({3, 2, 1, 0});
    const Running running = worker.run();
    std::uint64_t left = profile.bytes();
    std::uint64_t in_flight = 0;
    std::vector<std::uint32_t> unacknowledged;
    std::uint64_t most = 0;
    while (left > 0) {
        // Whatever the credit admits comes without an acknowledgement.
        const Message message = read_message(worker.push_socket);
        in_flight += message.bytes;
        most = std::max(most, in_flight);
        REQUIRE(in_flight <= policy.push.credit);
        left -= message.bytes;
        unacknowledged.push_back(message.layer);
        if (unacknowledged.size() < 3)
            continue;
        for (const std::uint32_t chunk : unacknowledged)
            worker.acknowledge(chunk);
        unacknowledged.clear();
        in_flight = 0;
    }
    CHECK(most == 150 * kb);
}

TEST_CASE("what is larger than the credit goes alone", "[strategy]") {
    const Profile profile = profile_of({100 * kb, 100 * kb});
    PsPolicy policy;
    policy.push = {.order = Order::priority, .credit = 10 * kb};
    WorkerUnderTest worker(profile, policy);
    worker.push({1, 0});
    const Running running = worker.run();
    CHECK(worker.read_layers(1) == Layers{1});
    worker.acknowledge(1);
    CHECK(worker.read_layers(1) == Layers{0});
}

TEST_CASE("each message pays its start-up cost, one after the other", "[strategy]") {
    const Profile profile = profile_of({20 * kb});
    PsPolicy policy;
    policy.slice = kb;
    policy.push = {.order = Order::priority, .startup = 3ms};
    WorkerUnderTest worker(profile, policy);
    const auto start = Clock::now();
    worker.push({0});
    const Running running = worker.run();
    worker.read_layers(20);
    CHECK(Clock::now() - start >= 20 * 3ms);
}

TEST_CASE("the server answers when all workers' chunks are in", "[strategy]") {
    ServerUnderTest server(profile_of({100, 100, 100}), {}, 2);
    const Running running = server.run();
    server.deliver(0, 2);
    server.deliver(0, 1);
    server.deliver(1, 1);  // layer 2 is not complete and must not be answered
    for (std::size_t worker = 0; worker < 2; ++worker)
        CHECK(server.read_layers(worker, 1) == Layers{1});
    server.deliver(1, 2);
    for (std::size_t worker = 0; worker < 2; ++worker)
        CHECK(server.read_layers(worker, 1) == Layers{2});
}

TEST_CASE("in enforced order no answer goes before those that precede it", "[strategy]") {
    PsPolicy policy;
    policy.pull = {.order = Order::enforced};
    ServerUnderTest server(profile_of({100, 200, 1, 300}), policy, 2);
    const Running running = server.run();
    for (std::uint32_t iteration = 1; iteration <= 3; ++iteration) {
        for (const std::uint32_t layer : {3U, 2U, 0U, 1U}) {
            for (std::size_t worker = 0; worker < 2; ++worker)
                server.deliver(worker, layer, iteration);
        }
        for (std::size_t worker = 0; worker < 2; ++worker)
            CHECK(server.read_layers(worker, 4) == Layers{0, 1, 2, 3});
    }
}

TEST_CASE("a streaming server returns what all have delivered of a chunk", "[strategy]") {
    PsPolicy policy;
    policy.pull = {.order = Order::priority, .late = true, .piece = 64 * kb};
    policy.streaming = true;
    ServerUnderTest server(profile_of({1000 * kb}), policy, 2);
    const Running running = server.run();
    // Worker 1 stops in the middle: what it has sent comes back.
    const Message whole{1, 0, 1000 * kb};
    write_message(server.push[0], whole);
    write_message(server.push[1], whole, 300 * kb);
    for (std::size_t worker = 0; worker < 2; ++worker) {
        for (std::uint64_t back = 0; back < 300 * kb;) {
            const Message piece = read_message(server.pull[worker]);
            CHECK(piece.bytes <= 64 * kb);
            back += piece.bytes;
            REQUIRE(back <= 300 * kb);
        }
    }
}

TEST_CASE("a worker may be an iteration ahead of the others", "[strategy]") {
    ServerUnderTest server(profile_of({100}), {}, 2);
    const Running running = server.run();
    server.deliver(0, 0, 1);
    server.deliver(0, 0, 2);
    server.deliver(1, 0, 1);
    CHECK(read_message(server.pull[0]).iteration == 1);
    CHECK(read_message(server.pull[1]).iteration == 1);
    server.deliver(1, 0, 2);
    CHECK(read_message(server.pull[0]).iteration == 2);
    CHECK(read_message(server.pull[1]).iteration == 2);
}
