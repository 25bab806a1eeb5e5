// SPDX-License-Identifier: MIT
//
// On the real clock: what happens in which order, not how fast.
#include "replay/trainer.hpp"

#include <string>
#include <thread>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;

namespace {

const Profile three{"three", "", {{"a", 1ms, 2ms, 4}, {"b", 0ms, 1ms, 4}, {"c", 1ms, 0ms, 4}}};

/// Notes what it is asked for, and when.
class Recorder : public Communicator {
  public:
    Result<void> push(std::size_t layer) override {
        calls += "p" + std::to_string(layer);
        pushed_at.push_back(Clock::now());
        return layer == failing_push ? Result<void>(Error{"no"}) : Result<void>{};
    }
    Result<void> wait(std::size_t layer) override {
        calls += "w" + std::to_string(layer);
        if (layer == slow_layer)
            std::this_thread::sleep_for(20ms);
        return layer == failing_wait ? Result<void>(Error{"gone"}) : Result<void>{};
    }

    std::string calls;
    std::vector<Clock::time_point> pushed_at;
    std::size_t failing_push = 99;
    std::size_t failing_wait = 99;
    std::size_t slow_layer = 99;
};

}  // namespace

TEST_CASE("pushes from the last layer, waits from the first", "[trainer]") {
    Recorder recorder;
    const auto log = train_worker(three, recorder, 2);
    REQUIRE(log);
    CHECK(log.value().size() == 2);
    CHECK(recorder.calls == "p2p1p0w0w1w2p2p1p0w0w1w2");
}

TEST_CASE("times of the backward pass add up exactly, and nothing is pushed early", "[trainer]") {
    Recorder recorder;
    const auto log = train_worker(three, recorder, 3);
    REQUIRE(log);
    for (std::size_t i = 0; i < 3; ++i) {
        const TrainedIteration& iteration = log.value()[i];
        CHECK(iteration.computed == std::vector<Clock::time_point>{iteration.start + 3ms,
                                                                   iteration.start + 1ms,
                                                                   iteration.start});
        for (std::size_t layer = 0; layer < 3; ++layer)
            CHECK(recorder.pushed_at[i * 3 + (2 - layer)] >= iteration.computed[layer]);
        if (i > 0)
            CHECK(iteration.start == log.value()[i - 1].end);
    }
}

TEST_CASE("a layer starts when it is back and the one before it is done", "[trainer]") {
    Recorder recorder;
    recorder.slow_layer = 1;
    const auto log = train_worker(three, recorder, 1);
    REQUIRE(log);
    const TrainedIteration& iteration = log.value()[0];
    CHECK(iteration.forward[0] >= iteration.start + 3ms);
    CHECK(iteration.forward[1] >= iteration.forward[0] + 1ms + 20ms);
    CHECK(iteration.waited[1] >= 20ms);
    CHECK(iteration.forward[2] >= iteration.forward[1]);
    CHECK(iteration.end == iteration.forward[2] + 1ms);
}

TEST_CASE("an error of the network ends the training", "[trainer]") {
    Recorder push;
    push.failing_push = 1;
    const auto pushed = train_worker(three, push, 5);
    REQUIRE_FALSE(pushed);
    CHECK(pushed.error().message == "no");
    CHECK(push.calls == "p2p1");

    Recorder wait;
    wait.failing_wait = 1;
    const auto waited = train_worker(three, wait, 5);
    REQUIRE_FALSE(waited);
    CHECK(waited.error().message == "gone");
    CHECK(wait.calls == "p2p1p0w0w1");
}

TEST_CASE("a trainer says where it is", "[trainer]") {
    TrainerPosition position;
    CHECK(position.describe(three) == "is about to start iteration 0");
    position.set_iteration(4);
    position.set(TrainerPosition::Phase::waiting, 1);
    CHECK(position.describe(three) == "waits for layer 1 (b) in iteration 4");
    position.set(TrainerPosition::Phase::backward, 2);
    CHECK(position.describe(three) == "computes the gradient of layer 2 (c) in iteration 4");
    position.set(TrainerPosition::Phase::forward, 0);
    CHECK(position.describe(three) == "computes layer 0 (a) in iteration 4");
    position.set(TrainerPosition::Phase::done, 0);
    CHECK(position.describe(three) == "is done after 4 iterations");
}
