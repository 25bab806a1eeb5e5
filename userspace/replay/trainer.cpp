// SPDX-License-Identifier: MIT
#include "replay/trainer.hpp"

#include <algorithm>
#include <thread>

#include <sys/prctl.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

/// Most layers of some models take no time: do not ask the kernel to sleep for it.
void sleep_until(Clock::time_point time, std::chrono::nanoseconds after) {
    if (after.count() > 0)
        std::this_thread::sleep_until(time);
}

}  // namespace

void TrainerPosition::set(Phase phase, std::size_t layer) {
    layer_ = layer;
    phase_ = phase;
}

std::string TrainerPosition::describe(const Profile& profile) const {
    const std::size_t layer = layer_;
    const std::string where = fmt::format(
        "layer {} ({}) in iteration {}", layer,
        layer < profile.layers.size() ? profile.layers[layer].name : "", iteration_.load());
    switch (phase_.load()) {
        case Phase::ready:
            return fmt::format("is about to start iteration {}", iteration_.load());
        case Phase::backward:
            return "computes the gradient of " + where;
        case Phase::waiting:
            return "waits for " + where;
        case Phase::forward:
            return "computes " + where;
        case Phase::done:
            break;
    }
    return fmt::format("is done after {} iterations", iteration_.load());
}

Result<void> Trainer::train(Clock::time_point start, const Proceed& proceed,
                            const Finished& finished) {
    // Each sleep may be longer by the slack, 50 us by default: 5 ms in an iteration of 100 layers.
    prctl(PR_SET_TIMERSLACK, 1);
    std::this_thread::sleep_until(start);
    std::size_t i = 0;
    for (; proceed(i); ++i) {
        position_.set_iteration(i);
        TrainedIteration iteration;
        iteration.start = start;
        const auto computed = backward(iteration);
        if (!computed)
            return computed.error();
        const auto end = forward(iteration, computed.value());
        if (!end)
            return end.error();
        iteration.end = start = end.value();
        finished(i, std::move(iteration));
    }
    position_.set_iteration(i);
    position_.set(TrainerPosition::Phase::done, 0);
    return {};
}

/// Each layer ends at a time that does not depend on when this thread woke up for those before it,
/// so that errors do not add up.
Result<Clock::time_point> Trainer::backward(TrainedIteration& iteration) {
    Clock::time_point time = iteration.start;
    iteration.computed.resize(profile_.layers.size());
    for (std::size_t layer = profile_.layers.size(); layer-- > 0;) {
        position_.set(TrainerPosition::Phase::backward, layer);
        const auto takes = profile_.layers[layer].backward;
        time += takes;
        sleep_until(time, takes);
        iteration.computed[layer] = time;
        if (auto pushed = communicator_.push(layer); !pushed)
            return pushed.error();
    }
    return time;
}

Result<Clock::time_point> Trainer::forward(TrainedIteration& iteration, Clock::time_point time) {
    for (std::size_t layer = 0; layer < profile_.layers.size(); ++layer) {
        position_.set(TrainerPosition::Phase::waiting, layer);
        if (auto back = communicator_.wait(layer); !back)
            return back.error();
        const Clock::time_point begin = std::max(time, Clock::now());
        iteration.waited.push_back(begin - time);
        iteration.forward.push_back(begin);

        position_.set(TrainerPosition::Phase::forward, layer);
        const auto takes = profile_.layers[layer].forward;
        time = begin + takes;
        sleep_until(time, takes);
    }
    return time;
}

Result<std::vector<TrainedIteration>> train_worker(const Profile& profile,
                                                   Communicator& communicator,
                                                   std::size_t iterations) {
    std::vector<TrainedIteration> log;
    Trainer trainer(profile, communicator);
    const auto trained = trainer.train(
        Clock::now(), [=](std::size_t i) { return i < iterations; },
        [&](std::size_t, TrainedIteration iteration) { log.push_back(std::move(iteration)); });
    if (!trained)
        return trained.error();
    return log;
}

}  // namespace mercury::replay
