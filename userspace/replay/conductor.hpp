// SPDX-License-Identifier: MIT
//
// When the iterations of several jobs begin, end and count.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "common/reactor.hpp"
#include "replay/trainer.hpp"

namespace mercury::replay {

/// An iteration of a job: from when the last worker ended the one before to when the last worker
/// ended this one. So the times of iterations add up to the time of the run.
struct JobIteration {
    Clock::time_point start;
    Clock::time_point end;
};

/// Every job trains for as long as another one is measured, so that all that counts happens while
/// all jobs train: from the moment when the last of them has warmed up to the moment when each
/// has ended its iterations since then.
class Conductor {
  public:
    /// RANKS is the number of workers of each job; all start at START.
    Conductor(std::vector<std::size_t> ranks, std::size_t warm_up, std::size_t iterations,
              Clock::time_point start);

    // For the trainers.

    /// May this job do this iteration? All its workers get the same answer.
    bool proceed(std::size_t job, std::size_t iteration);
    void finished(std::size_t job, std::size_t rank, std::size_t iteration, TrainedIteration log);

    // For the one who waits.

    enum class Wait { reached, stalled };
    /// Until all have warmed up. Stalled: no worker has finished an iteration for PATIENCE.
    Wait wait_for_warm_up(std::chrono::nanoseconds patience);
    Wait wait_for_end(std::chrono::nanoseconds patience);
    /// Sleeps; false if the run has ended before that.
    bool runs_until(Clock::time_point time);
    /// Ends all of them at once, with `reached`.
    void abandon();
    bool abandoned() const;

    // After the end.

    Clock::time_point measured_from() const;
    Clock::time_point measured_until() const;
    /// Those that began and ended in between.
    std::vector<JobIteration> measured(std::size_t job) const;
    /// What worker 0 did in those.
    std::vector<TrainedIteration> log(std::size_t job) const;

  private:
    struct JobState {
        std::vector<std::size_t> done;        // iterations by rank
        std::size_t allowed = 0;              // iterations that may begin
        bool closed = false;                  // no further one may
        std::vector<Clock::time_point> ends;  // of all ranks together
        std::optional<std::size_t> first_measured;
        std::vector<TrainedIteration> log;  // of rank 0
    };

    void job_iteration_ended(JobState& job, Clock::time_point now);
    bool warm(const JobState& job) const { return job.ends.size() >= warm_up_; }
    bool complete(const JobState& job) const;
    bool others_need(std::size_t job) const;
    Wait wait(const std::optional<Clock::time_point>& moment, std::chrono::nanoseconds patience);

    std::size_t warm_up_;
    std::size_t iterations_;
    Clock::time_point start_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<JobState> jobs_;
    std::size_t events_ = 0;  // iterations that any worker has finished
    bool abandoned_ = false;
    std::optional<Clock::time_point> warm_at_;
    std::optional<Clock::time_point> end_at_;
};

}  // namespace mercury::replay
