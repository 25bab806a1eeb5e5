// SPDX-License-Identifier: MIT
//
// The calls of a worker: callbacks, threads, and what each refuses.
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "rounds.hpp"
#include "world.hpp"

using namespace mercury;
using namespace mercury::transport;
using namespace mercury::transport::test;

namespace {

std::string error_of(const Result<Worker::Ticket>& outcome) {
    return outcome ? "" : outcome.error().message;
}

std::string error_of(const Result<void>& outcome) {
    return outcome ? "" : outcome.error().message;
}

/// What a callback was told, for the thread that waits for it.
class Call {
  public:
    Worker::Callback callback() {
        return [this](const Result<void>& outcome) {
            const std::lock_guard lock(mutex_);
            outcome_ = error_of(outcome);
            ++calls_;
            changed_.notify_all();
        };
    }
    std::string wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return outcome_.has_value(); });
        return *outcome_;
    }
    int calls() {
        const std::lock_guard lock(mutex_);
        return calls_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<std::string> outcome_;
    int calls_ = 0;
};

}  // namespace

TEST_CASE("a callback may begin the next round") {
    constexpr std::size_t workers = 3;
    constexpr std::uint64_t last_round = 50;
    const Rounds rounds({{"t", ElementType::f32, 30'000}}, workers, SumOrder::rank, Kind::finite,
                        1);
    const World world(2);
    const auto joined = world.join(workers, rounds.tensors(), SumOrder::rank);

    std::array<Bytes, workers> buffers;
    std::array<Call, workers> finished;
    std::array<std::string, workers> wrong;
    std::array<std::function<void(std::uint64_t)>, workers> begin;
    for (std::size_t w = 0; w < workers; ++w) {
        begin[w] = [&, w](std::uint64_t round) {
            buffers[w] = rounds.gradient(0, round, w);
            const auto begun =
                joined[w]->push_pull(0, buffers[w], [&, w, round](const Result<void>& outcome) {
                    wrong[w] += error_of(outcome);
                    if (w == 0)
                        wrong[w] += rounds.check(0, round, buffers[w]);
                    if (round < last_round && wrong[w].empty())
                        begin[w](round + 1);
                    else
                        finished[w].callback()(outcome);
                });
            // Once begun, `wrong` is the callback's, which may be running already.
            if (!begun)
                wrong[w] += error_of(begun);
        };
        begin[w](1);
    }
    for (std::size_t w = 0; w < workers; ++w) {
        REQUIRE(finished[w].wait() == "");
        REQUIRE(wrong[w] == "");
        REQUIRE(joined[w]->wait({0, last_round}).has_value());
        REQUIRE(buffers[w] == buffers[0]);
    }
}

TEST_CASE("several threads push at one worker") {
    constexpr std::size_t threads = 8;
    constexpr std::uint64_t last_round = 30;
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < threads; ++i)
        tensors.push_back({"t" + std::to_string(i), ElementType::f32, 100 + i * 3000,
                           static_cast<unsigned>(i % 3)});
    const Rounds rounds(tensors, 2, SumOrder::arrival, Kind::integers, 2);
    const World world(2);
    const auto joined = world.join(2, tensors);

    std::array<std::string, threads> wrong;
    std::vector<std::thread> pushing;
    for (std::size_t t = 0; t < threads; ++t) {
        pushing.emplace_back([&, t] {
            for (std::uint64_t round = 1; round <= last_round && wrong[t].empty(); ++round) {
                std::array<Bytes, 2> buffers;
                for (std::size_t w = 0; w < 2; ++w) {
                    buffers[w] = rounds.gradient(t, round, w);
                    wrong[t] += error_of(joined[w]->push_pull(t, buffers[w]));
                }
                for (std::size_t w = 0; w < 2; ++w) {
                    wrong[t] += error_of(joined[w]->wait({t, round}));
                    wrong[t] += rounds.check(t, round, buffers[w]);
                }
            }
        });
    }
    for (std::thread& thread : pushing)
        thread.join();
    for (const std::string& text : wrong)
        REQUIRE(text == "");
}

TEST_CASE("what a worker refuses, it says, and goes on") {
    const std::vector<Tensor> tensors{{"first", ElementType::f32, 100},
                                      {"half", ElementType::f16, 100}};
    Bytes buffer(400);
    Bytes other(400);
    const World world(1);
    auto joined = world.join(2, tensors);
    Worker& worker = *joined[0];

    REQUIRE(worker.index_of("first") == 0);
    REQUIRE(worker.index_of("half") == 1);
    REQUIRE(worker.index_of("second") == std::nullopt);
    REQUIRE(error_of(worker.push_pull(2, buffer)) == "there is no tensor number 2; the last is 1");
    REQUIRE(error_of(worker.push_pull(1, buffer)) ==
            "the buffer for \"half\" has 400 bytes instead of 200");
    REQUIRE(error_of(worker.push_pull(0, std::span(buffer).first(396))) ==
            "the buffer for \"first\" has 396 bytes instead of 400");
    REQUIRE(error_of(worker.wait({2, 1})) == "there is no tensor number 2");
    REQUIRE(error_of(worker.wait({0, 1})) == "round 1 of \"first\" was not begun");

    Call call;
    REQUIRE(worker.push_pull(0, buffer, call.callback()).value().round == 1);
    Call never;
    REQUIRE(error_of(worker.push_pull(0, other, never.callback())) ==
            "\"first\" is still in flight: wait for its round 1 first");
    REQUIRE(joined[1]->push_pull(0, other).has_value());
    REQUIRE(call.wait() == "");
    REQUIRE(worker.wait({0, 1}).has_value());
    REQUIRE(joined[1]->wait({0, 1}).has_value());
    REQUIRE(worker.push_pull(0, buffer).value().round == 2);
    REQUIRE(never.calls() == 0);
    REQUIRE(worker.wait({0, 1}).has_value());  // has been complete for long
}

TEST_CASE("waiting for a time") {
    std::array<Bytes, 2> buffers;
    buffers.fill(Bytes(40));
    const World world(1);
    auto joined = world.join(2, {{"t", ElementType::f32, 10}});
    const auto ticket = joined[0]->push_pull(0, buffers[0]).value();
    for (const int ms : {0, 1, 20})
        REQUIRE_FALSE(joined[0]->wait_for(ticket, std::chrono::milliseconds{ms}).value());
    REQUIRE(joined[1]->push_pull(0, buffers[1]).has_value());
    REQUIRE(joined[0]->wait_for(ticket, std::chrono::minutes{1}).value());
    REQUIRE(joined[0]->wait_for(ticket, std::chrono::milliseconds{0}).value());
    REQUIRE(joined[0]->push_pull(0, buffers[0]).has_value());
    joined[1].reset();
    REQUIRE_FALSE(joined[0]->wait_for({0, 2}, std::chrono::minutes{1}).has_value());
}

TEST_CASE("a callback that would wait for itself gets an error") {
    std::array<Bytes, 4> buffers;
    buffers.fill(Bytes(40));
    const World world(1);
    auto joined = world.join(2, {{"a", ElementType::f32, 10}, {"b", ElementType::f32, 10}});
    REQUIRE(joined[0]->push_pull(1, buffers[1]).has_value());
    std::string inside;
    Call call;
    const auto begun = joined[0]->push_pull(
        0, buffers[0], [&, tell = call.callback()](const Result<void>& outcome) {
            inside = error_of(joined[0]->wait({0, 1}));  // this one is complete
            inside += error_of(joined[0]->wait({1, 1}));
            tell(outcome);
        });
    REQUIRE(begun.has_value());
    REQUIRE(joined[1]->push_pull(0, buffers[2]).has_value());
    REQUIRE(call.wait() == "");
    REQUIRE(inside == "a callback cannot wait: it is what the worker's thread is busy with");
    REQUIRE(joined[1]->push_pull(1, buffers[3]).has_value());
    REQUIRE(joined[0]->wait({1, 1}).has_value());
}

TEST_CASE("every caller learns of the end, once") {
    std::array<Bytes, 3> buffers;
    buffers.fill(Bytes(40));
    World world(2);
    auto joined = world.join(2, {{"a", ElementType::f32, 10},
                                 {"b", ElementType::f32, 10, 1},
                                 {"c", ElementType::f32, 10, 2}});
    Call call;
    REQUIRE(joined[0]->push_pull(0, buffers[0], call.callback()).has_value());
    const auto ticket = joined[0]->push_pull(1, buffers[1]).value();
    std::string waited;
    std::thread waiting([&] { waited = error_of(joined[0]->wait(ticket)); });

    SECTION("when another worker leaves") {
        joined[1].reset();
        call.wait();
        waiting.join();
        const std::string expected = "worker 1 (127.0.0.1:";
        REQUIRE_THAT(waited, Catch::StartsWith("server " + world.servers[0]->address() + ": ") ||
                                 Catch::StartsWith("server " + world.servers[1]->address() + ": "));
        REQUIRE_THAT(waited, Catch::Contains("worker 0 (127.0.0.1:") &&
                                 Catch::EndsWith(") of job \"test\" has left"));
    }
    SECTION("when the servers are stopped") {
        const std::string address = world.servers[0]->address();
        world.servers[0]->stop();
        call.wait();
        waiting.join();
        REQUIRE(waited == "server " + address + ": the server was stopped");
    }
    SECTION("when the worker itself is taken down") {
        // The waiting thread must be out of the worker before it goes.
        world.servers.clear();
        waiting.join();
        joined[0].reset();
        REQUIRE(call.calls() == 1);
        return;
    }
    REQUIRE(call.wait() == waited);
    REQUIRE(call.calls() == 1);
    REQUIRE(error_of(joined[0]->push_pull(2, buffers[2])) == waited);
    REQUIRE(error_of(joined[0]->wait(ticket)) == waited);
    joined.clear();
    REQUIRE(call.calls() == 1);
}

TEST_CASE("a worker that goes calls back what is in flight") {
    Bytes buffer(40);
    const World world(1);
    auto joined = world.join(2, {{"t", ElementType::f32, 10}});
    Call call;
    REQUIRE(joined[0]->push_pull(0, buffer, call.callback()).has_value());
    joined[0].reset();
    REQUIRE(call.wait() == "this worker has left the job");
    REQUIRE(call.calls() == 1);
}

TEST_CASE("names must be text") {
    const World world(1);
    auto options = world.options(0, 1);
    const auto refused = [&](std::vector<Tensor> tensors) {
        const auto outcome = Worker::join(options, std::move(tensors));
        return outcome ? "" : outcome.error().message;
    };
    REQUIRE(refused({{"a\xff", ElementType::f32, 1}}) == "the key of tensor 0 must be UTF-8");
    options.job = "\xc3";
    REQUIRE(refused({{"a", ElementType::f32, 1}}) == "the job's name and the token must be UTF-8");
    options.job = "\xc3\xa4";
    REQUIRE(refused({{"\xe6\xbc\xa2", ElementType::f32, 1}}).empty());
}
