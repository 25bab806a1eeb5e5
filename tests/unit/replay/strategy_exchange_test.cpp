// SPDX-License-Identifier: MIT
//
// Whole exchanges over loopback, on the real clock: what happens, not how fast.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "replay/trainer.hpp"
#include "strategy_test_rig.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace mercury::replay::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// Single bytes, fewer bytes than servers, many slices, and what no server divides.
const Profile uneven = profile_of({1, 2, 1'000'003, 7, 300'000, 1, 65'537});

// Small enough that the layers above take many of each.
StrategySpec spec_of(const std::string& name) {
    StrategySpec spec{name, {}};
    if (name == "p3")
        spec.parameters = {{"slice", "40kb"}};
    else if (name == "bytescheduler")
        spec.parameters = {{"partition", "30kb"}, {"credit", "70kb"}};
    else if (name == "allreduce")
        spec.parameters = {{"bucket", "250kb"}, {"first", "1kb"}, {"segment", "20kb"}};
    return spec;
}

/// What went wrong in a trainer's thread, where Catch must not be called.
using Wrong = std::atomic<const char*>;

/// Trains like train_worker(), and checks that no layer comes back before all have pushed it.
void train(Communicator& communicator, std::size_t rank, std::size_t iterations,
           std::vector<std::vector<std::atomic<std::size_t>>>& pushed, Wrong& wrong) {
    const std::size_t layers = uneven.layers.size();
    for (std::size_t iteration = 1; iteration <= iterations; ++iteration) {
        for (std::size_t layer = layers; layer-- > 0;) {
            pushed[layer][rank] = iteration;
            if (!communicator.push(layer))
                wrong = "push failed";
        }
        for (std::size_t layer = 0; layer < layers; ++layer) {
            if (!communicator.wait(layer))
                wrong = "wait failed";
            for (const auto& by_worker : pushed[layer]) {
                if (by_worker < iteration)
                    wrong = "a layer came back before all workers had pushed it";
            }
        }
    }
}

void check_training(const StrategySpec& spec, std::size_t workers, std::size_t servers) {
    INFO(spec.name << ", " << workers << " workers, " << servers << " servers");
    const Job job = job_of(uneven, workers, servers);
    const auto exchange = connect(spec, job);
    std::vector<std::vector<std::atomic<std::size_t>>> pushed;
    for (std::size_t layer = 0; layer < uneven.layers.size(); ++layer)
        pushed.emplace_back(workers);
    Wrong wrong{nullptr};
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < workers; ++rank) {
        threads.emplace_back([&, rank] { train(exchange->worker(rank), rank, 3, pushed, wrong); });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK((wrong == nullptr ? std::string() : std::string(wrong)).empty());
}

/// A connector that keeps a copy of each connection's first end.
struct Tap {
    std::vector<int> copies;

    Connector connector() {
        return [this, loopback = over_loopback()](std::size_t from, std::size_t to,
                                                  const Endpoint& endpoint) {
            auto connection = loopback(from, to, endpoint);
            if (connection)
                copies.push_back(dup(connection.value().from.get()));
            return connection;
        };
    }
    Tap() = default;
    Tap(const Tap&) = delete;
    Tap& operator=(const Tap&) = delete;
    ~Tap() {
        for (const int copy : copies)
            close(copy);
    }
};

}  // namespace

TEST_CASE("every layer comes back from all workers in every iteration", "[strategy]") {
    const std::string name = GENERATE(from_range(baselines));
    for (std::size_t workers = 1; workers <= 4; ++workers) {
        for (std::size_t servers = 1; servers <= 3; ++servers)
            check_training(spec_of(name), workers, servers);
    }
}

TEST_CASE("so it is with one bucket at a time, and with overlap", "[strategy]") {
    StrategySpec spec = spec_of("allreduce");
    spec.parameters["concurrent"] = GENERATE("1", "64");
    spec.parameters["overlap"] = "yes";
    for (std::size_t workers = 1; workers <= 4; ++workers)
        check_training(spec, workers, 1);
}

TEST_CASE("so it is when the in-flight bytes are bounded", "[strategy]") {
    StrategySpec spec = spec_of(GENERATE(from_range(baselines)));
    spec.parameters["window"] = "16kb";
    check_training(spec, 3, 2);
}

TEST_CASE("so it is when each message has a start-up cost", "[strategy]") {
    StrategySpec spec = spec_of(GENERATE("p3", "bytescheduler"));
    spec.parameters["startup"] = "20us";
    check_training(spec, 2, 2);
}

TEST_CASE("a layer that was never pushed is there", "[strategy]") {
    const Job job = job_of(uneven, 1, 1);
    const auto exchange = connect({GENERATE(from_range(baselines)), {}}, job);
    CHECK(exchange->worker(0).wait(3));
}

TEST_CASE("a layer cannot be pushed twice", "[strategy]") {
    // The other worker pushes nothing.
    const Job job = job_of(uneven, 2, 1);
    const auto exchange = connect({GENERATE(from_range(baselines)), {}}, job);
    REQUIRE(exchange->worker(0).push(2));
    const auto again = exchange->worker(0).push(2);
    REQUIRE_FALSE(again);
    CHECK_THAT(again.error().message, Contains("layer 2 (layer) is pushed again"));
    CHECK_FALSE(exchange->worker(0).push(7));
}

TEST_CASE("plain all-reduce returns no layer before the last bucket", "[strategy]") {
    const bool overlap = GENERATE(false, true);
    StrategySpec spec = spec_of("allreduce");
    spec.parameters["overlap"] = overlap ? "yes" : "no";
    const Job job = job_of(uneven, 2, 1);
    const auto exchange = connect(spec, job);
    const std::size_t last = uneven.layers.size() - 1;
    // Both push the last layer, which is a bucket of its own, and not yet the others.
    for (std::size_t rank = 0; rank < 2; ++rank)
        REQUIRE(exchange->worker(rank).push(last));
    if (overlap) {
        CHECK(exchange->worker(0).wait(last));
        return;
    }
    std::atomic<bool> rest_pushed{false};
    bool early = false;
    std::thread waiting([&] {
        const auto back = exchange->worker(0).wait(last);
        early = !back || !rest_pushed;
    });
    for (std::size_t layer = last; layer-- > 1;) {
        for (std::size_t rank = 0; rank < 2; ++rank)
            REQUIRE(exchange->worker(rank).push(layer));
    }
    rest_pushed = true;
    for (std::size_t rank = 0; rank < 2; ++rank)
        REQUIRE(exchange->worker(rank).push(0));
    waiting.join();
    CHECK_FALSE(early);
}

TEST_CASE("an exchange may end in the middle of a transfer", "[strategy]") {
    const std::string name = GENERATE(from_range(baselines));
    const Job job = job_of(profile_of({20'000'000, 30'000'000, 1}), 3, 2);
    for (int round = 0; round < 5; ++round) {
        const auto exchange = connect({name, {}}, job);
        for (std::size_t layer = 3; layer-- > 0;) {
            for (std::size_t rank = 0; rank < 3; ++rank)
                REQUIRE(exchange->worker(rank).push(layer));
        }
    }
}

TEST_CASE("whoever waits while the exchange is closed gets an error", "[strategy]") {
    const Job job = job_of(uneven, 2, 1);
    auto exchange = connect({GENERATE(from_range(baselines)), {}}, job);
    REQUIRE(exchange->worker(0).push(0));
    std::atomic<bool> waits{false};
    Result<void> outcome;
    std::thread trainer([&, &worker = exchange->worker(0)] {
        waits = true;
        outcome = worker.wait(0);
    });
    while (!waits)
        std::this_thread::yield();
    std::this_thread::sleep_for(1ms);  // most often it is in wait() by now
    exchange.reset();
    trainer.join();
    REQUIRE_FALSE(outcome);
}

TEST_CASE("a broken connection is an error for all who wait", "[strategy]") {
    const std::string name = GENERATE(from_range(baselines));
    // Worker 2 pushes nothing, so that nobody can be done.
    const Job job = job_of(uneven, 3, 2);
    Tap tap;
    const auto exchange = connect({name, {}}, job, tap.connector());
    for (std::size_t rank = 0; rank < 2; ++rank)
        REQUIRE(exchange->worker(rank).push(0));
    shutdown(tap.copies.front(), SHUT_RDWR);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        const auto back = exchange->worker(rank).wait(0);
        REQUIRE_FALSE(back);
        CHECK_THAT(back.error().message, Contains("closed the connection") ||
                                             Contains("cannot receive from") ||
                                             Contains("cannot send to"));
        CHECK_FALSE(exchange->worker(rank).push(1));
    }
}

TEST_CASE("garbage on a connection is an error for all who wait", "[strategy]") {
    const std::string name = GENERATE(from_range(baselines));
    const std::string garbage = GENERATE(
        std::string(64, 'x'),
        // A chunk that does not exist, and one whose iteration is yet to come.
        std::string{'M', 'R', 'E', 'Y', 0, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x'},
        std::string{'M', 'R', 'E', 'Y', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x'});
    const Job job = job_of(uneven, 2, 1);
    Tap tap;
    const auto exchange = connect({name, {}}, job, tap.connector());
    REQUIRE(exchange->worker(0).push(4));
    // The first connection, on which worker 0 has sent: but maybe not all of it, so use another
    // worker's.
    const int victim = tap.copies.at(name == "allreduce" ? 1 : 2);
    REQUIRE(write(victim, garbage.data(), garbage.size()) == static_cast<ssize_t>(garbage.size()));
    const auto back = exchange->worker(0).wait(4);
    REQUIRE_FALSE(back);
    CHECK_THAT(back.error().message,
               Contains("worker 1") && (Contains("not a layer") || Contains("not its turn")));
}

TEST_CASE("the trainer works over a strategy", "[strategy]") {
    const Job job = job_of(uneven, 1, 1);
    const auto exchange = connect({"mercury-user", {}}, job);
    const auto trained = train_worker(job.profile, exchange->worker(0), 2);
    REQUIRE(trained);
    CHECK(trained.value().size() == 2);
}
