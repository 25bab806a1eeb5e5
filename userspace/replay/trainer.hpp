// SPDX-License-Identifier: MIT
//
// The training loop of one worker over any strategy. Compute is emulated by sleeping.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/reactor.hpp"
#include "common/result.hpp"
#include "layers/profile.hpp"
#include "replay/communicator.hpp"

namespace mercury::replay {

/// One backward pass and the next forward pass.
struct TrainedIteration {
    Clock::time_point start;
    Clock::time_point end;
    std::vector<Clock::time_point> computed;       // by layer: the end of its backward pass
    std::vector<Clock::time_point> forward;        // by layer: the start of its forward pass
    std::vector<std::chrono::nanoseconds> waited;  // by layer: for its parameters
};

/// Where a worker is, for those who watch it from another thread.
class TrainerPosition {
  public:
    enum class Phase { ready, backward, waiting, forward, done };

    void set(Phase phase, std::size_t layer);
    void set_iteration(std::size_t iteration) { iteration_ = iteration; }

    /// "waits for layer 3 (conv1) in iteration 2"; both are counted from 0.
    std::string describe(const Profile& profile) const;

  private:
    std::atomic<Phase> phase_{Phase::ready};
    std::atomic<std::size_t> layer_{0};
    std::atomic<std::size_t> iteration_{0};
};

class Trainer {
  public:
    /// Asked before each iteration, from 0; all workers of a job must get the same answers.
    using Proceed = std::function<bool(std::size_t iteration)>;
    /// Told after each.
    using Finished = std::function<void(std::size_t iteration, TrainedIteration log)>;

    /// PROFILE and COMMUNICATOR outlive the trainer.
    Trainer(const Profile& profile, Communicator& communicator)
        : profile_(profile), communicator_(communicator) {}

    /// From START on.
    Result<void> train(Clock::time_point start, const Proceed& proceed, const Finished& finished);

    const TrainerPosition& position() const { return position_; }

  private:
    Result<Clock::time_point> backward(TrainedIteration& iteration);
    Result<Clock::time_point> forward(TrainedIteration& iteration, Clock::time_point time);

    const Profile& profile_;
    Communicator& communicator_;
    TrainerPosition position_;
};

/// On the calling thread, from now on.
Result<std::vector<TrainedIteration>> train_worker(const Profile& profile,
                                                   Communicator& communicator,
                                                   std::size_t iterations);

}  // namespace mercury::replay
