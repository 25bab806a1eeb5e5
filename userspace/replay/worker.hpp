// SPDX-License-Identifier: MIT
//
// The training loop of one worker. Compute is emulated by sleeping.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/reactor.hpp"
#include "common/result.hpp"
#include "layers/profile.hpp"
#include "replay/channel.hpp"
#include "replay/sockets.hpp"

namespace mercury::replay {

/// When a layer was computed.
struct Span {
    Clock::time_point start;
    Clock::time_point end;
};

struct IterationLog {
    Clock::time_point start;     // of the backward pass
    Clock::time_point end;       // of the next forward pass
    std::vector<Span> backward;  // by layer
    std::vector<Span> forward;   // by layer
};

struct WorkerLog {
    std::vector<IterationLog> iterations;
    std::vector<Arrival> pulled;
    std::uint64_t retransmits = 0;
};

/// An iteration is a backward pass, which sends the gradient of each layer when it is computed,
/// from the last layer to the first, and the next forward pass, which waits for the parameters
/// of each layer in order.
class Worker {
  public:
    /// CLASS_OF_LAYER says which of ENDS a layer takes. PROFILE must outlive the worker.
    Worker(const Profile& profile, std::vector<std::size_t> class_of_layer, Ends ends);

    /// Ends early with an error if INTERRUPT_FD becomes readable (-1: none).
    Result<WorkerLog> train(std::size_t iterations, int interrupt_fd);

  private:
    enum class Phase { backward, forward };

    Result<void> attach(int interrupt_fd);
    Result<void> start_iteration(Clock::time_point now);
    Result<void> compute(Clock::time_point now);
    Result<void> computed();
    Result<void> backward_done(Clock::time_point now);
    Result<void> forward_if_back(Clock::time_point now);
    Result<void> arrived(const Arrival& arrival);
    Result<void> watch_progress(Clock::time_point now);
    Result<void> check_progress();
    std::uint64_t bytes_moved() const;

    const Profile& profile_;
    std::vector<std::size_t> class_of_layer_;
    std::deque<Channel> push_;  // by class; a deque keeps its elements where they are
    std::deque<Channel> pull_;
    Reactor reactor_;
    Timer compute_timer_;
    Timer stall_timer_;

    WorkerLog log_;
    std::size_t iterations_ = 0;

    // Of the current iteration.
    Phase phase_ = Phase::backward;
    std::size_t layer_ = 0;  // computed now, or waited for
    bool waiting_ = false;   // for layer_ to arrive
    Clock::time_point compute_end_;
    std::vector<std::uint64_t> missing_;  // bytes that have not come back, by layer
    std::uint64_t stall_seen_ = 0;        // bytes_moved() when the stall timer was set
};

}  // namespace mercury::replay
