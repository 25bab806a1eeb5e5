// SPDX-License-Identifier: MIT
#include "replay/conductor.hpp"

#include <algorithm>
#include <utility>

namespace mercury::replay {

Conductor::Conductor(std::vector<std::size_t> ranks, std::size_t warm_up, std::size_t iterations,
                     Clock::time_point start)
    : warm_up_(warm_up), iterations_(iterations), start_(start) {
    for (const std::size_t count : ranks) {
        JobState job;
        job.done.resize(count);
        if (warm_up == 0)
            job.first_measured = 0;
        jobs_.push_back(std::move(job));
    }
    if (warm_up == 0)
        warm_at_ = start;
}

bool Conductor::proceed(std::size_t index, std::size_t iteration) {
    const std::lock_guard lock(mutex_);
    JobState& job = jobs_[index];
    if (iteration < job.allowed)
        return true;
    const bool begun_all = job.first_measured && iteration >= *job.first_measured + iterations_;
    if (job.closed || abandoned_ || (begun_all && !others_need(index))) {
        job.closed = true;
        return false;
    }
    job.allowed = iteration + 1;
    return true;
}

bool Conductor::others_need(std::size_t index) const {
    for (std::size_t other = 0; other < jobs_.size(); ++other) {
        if (other != index && !complete(jobs_[other]))
            return true;
    }
    return false;
}

bool Conductor::complete(const JobState& job) const {
    return job.first_measured && job.ends.size() >= *job.first_measured + iterations_;
}

void Conductor::finished(std::size_t index, std::size_t rank, std::size_t iteration,
                         TrainedIteration log) {
    const std::lock_guard lock(mutex_);
    JobState& job = jobs_[index];
    const Clock::time_point now = log.end;
    job.done[rank] = iteration + 1;
    if (rank == 0)
        job.log.push_back(std::move(log));
    ++events_;
    if (*std::min_element(job.done.begin(), job.done.end()) > job.ends.size())
        job_iteration_ended(job, now);
    changed_.notify_all();
}

void Conductor::job_iteration_ended(JobState& job, Clock::time_point now) {
    job.ends.push_back(std::max(now, job.ends.empty() ? start_ : job.ends.back()));
    if (!warm_at_ && std::all_of(jobs_.begin(), jobs_.end(),
                                 [this](const JobState& one) { return warm(one); })) {
        warm_at_ = job.ends.back();
        // What the other jobs do at this moment began too early.
        for (JobState& one : jobs_)
            one.first_measured = one.ends.size() + (&one == &job ? 0 : 1);
    }
    if (!end_at_ && std::all_of(jobs_.begin(), jobs_.end(),
                                [this](const JobState& one) { return complete(one); }))
        end_at_ = job.ends.back();
}

Conductor::Wait Conductor::wait(const std::optional<Clock::time_point>& moment,
                                std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    while (!moment && !abandoned_) {
        const std::size_t seen = events_;
        if (!changed_.wait_for(lock, patience,
                               [&] { return moment || abandoned_ || events_ != seen; }))
            return Wait::stalled;
    }
    return Wait::reached;
}

Conductor::Wait Conductor::wait_for_warm_up(std::chrono::nanoseconds patience) {
    return wait(warm_at_, patience);
}

Conductor::Wait Conductor::wait_for_end(std::chrono::nanoseconds patience) {
    return wait(end_at_, patience);
}

bool Conductor::runs_until(Clock::time_point time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, time, [this] { return end_at_ || abandoned_; });
}

void Conductor::abandon() {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    changed_.notify_all();
}

bool Conductor::abandoned() const {
    const std::lock_guard lock(mutex_);
    return abandoned_;
}

Clock::time_point Conductor::measured_from() const {
    const std::lock_guard lock(mutex_);
    return warm_at_.value();
}

Clock::time_point Conductor::measured_until() const {
    const std::lock_guard lock(mutex_);
    return end_at_.value();
}

std::vector<JobIteration> Conductor::measured(std::size_t index) const {
    const std::lock_guard lock(mutex_);
    const JobState& job = jobs_[index];
    std::vector<JobIteration> iterations;
    for (std::size_t i = *job.first_measured; i < job.ends.size() && job.ends[i] <= *end_at_; ++i)
        iterations.push_back({i == 0 ? start_ : job.ends[i - 1], job.ends[i]});
    return iterations;
}

std::vector<TrainedIteration> Conductor::log(std::size_t index) const {
    const std::size_t count = measured(index).size();
    const std::lock_guard lock(mutex_);
    const JobState& job = jobs_[index];
    const auto first = job.log.begin() + static_cast<std::ptrdiff_t>(*job.first_measured);
    return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace mercury::replay
