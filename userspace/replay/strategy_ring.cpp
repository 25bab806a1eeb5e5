// SPDX-License-Identifier: MIT
#include "replay/strategy_ring.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

/// Segments of all buckets for a ring of WORKERS.
std::vector<Segment> cut_segments(const std::vector<Bucket>& buckets, std::size_t workers,
                                  std::uint64_t size) {
    std::vector<Segment> segments;
    for (std::uint32_t bucket = 0; bucket < buckets.size(); ++bucket) {
        for (std::uint32_t chunk = 0; chunk < workers; ++chunk) {
            // The first chunks take what does not divide.
            const std::uint64_t bytes = buckets[bucket].bytes;
            std::uint64_t left = bytes / workers + (chunk < bytes % workers ? 1 : 0);
            for (; left > 0; left -= std::min(left, size))
                segments.push_back({bucket, chunk, std::min(left, size)});
        }
    }
    return segments;
}

}  // namespace

std::vector<Bucket> fill_buckets(const Profile& profile, std::uint64_t first, std::uint64_t cap) {
    std::vector<Bucket> buckets;
    bool full = true;
    for (std::size_t layer = profile.layers.size(); layer-- > 0;) {
        if (full)
            buckets.emplace_back();
        Bucket& bucket = buckets.back();
        bucket.layers.push_back(layer);
        bucket.bytes += profile.layers[layer].bytes;
        full = bucket.bytes >= (buckets.size() == 1 ? first : cap);
    }
    return buckets;
}

RingWorker::RingWorker(const Profile& profile, const RingPolicy& policy, std::size_t rank,
                       std::size_t workers, Links links, std::shared_ptr<Progress> progress)
    : policy_(policy),
      rank_(rank),
      workers_(workers),
      progress_(std::move(progress)),
      buckets_(fill_buckets(profile, policy.first_bucket, policy.bucket)),
      bucket_of_layer_(profile.layers.size()),
      states_(buckets_.size()),
      segments_(cut_segments(buckets_, workers, policy.segment)),
      arrived_(segments_.size()) {
    if (workers > 1) {
        next_.emplace_back(std::move(links.next), fmt::format("worker {}", (rank + 1) % workers));
        previous_.emplace_back(std::move(links.previous),
                               fmt::format("worker {}", (rank + workers - 1) % workers));
    }
    for (std::uint32_t bucket = 0; bucket < buckets_.size(); ++bucket)
        lay_out(bucket);
}

void RingWorker::lay_out(std::uint32_t bucket) {
    for (const std::size_t layer : buckets_[bucket].layers)
        bucket_of_layer_[layer] = bucket;
    BucketState& state = states_[bucket];
    state.first = bucket == 0 ? 0 : states_[bucket - 1].end;
    state.end = state.first;
    for (; state.end < segments_.size() && segments_[state.end].bucket == bucket; ++state.end)
        state.arrivals += arrivals_of(segments_[state.end]);
    state.unready = buckets_[bucket].layers.size();
    state.arrivals_left = state.arrivals;
}

/// The hop, from 0, with which a segment arrives here for the first time.
std::size_t RingWorker::first_hop(const Segment& segment) const {
    return (rank_ + workers_ - segment.chunk + workers_ - 1) % workers_;
}

/// A segment makes 2 (N - 1) hops: it ends before it comes a second time to where its sum was
/// complete, or to where it started.
std::size_t RingWorker::arrivals_of(const Segment& segment) const {
    if (workers_ == 1)
        return 0;
    return first_hop(segment) + workers_ < 2 * (workers_ - 1) ? 2 : 1;
}

Result<void> RingWorker::attach(Reactor& reactor) {
    for (Channel& channel : next_) {
        auto attached = channel.attach(reactor, [this](const Arrival& /*arrival*/) -> Result<void> {
            return Error{fmt::format("worker {} sent data the wrong way round the ring",
                                     (rank_ + 1) % workers_)};
        });
        if (!attached)
            return attached;
    }
    for (Channel& channel : previous_) {
        auto attached =
            channel.attach(reactor, [this](const Arrival& arrival) { return received(arrival); });
        if (!attached)
            return attached;
    }
    return {};
}

Result<void> RingWorker::push(std::size_t layer) {
    --states_[bucket_of_layer_[layer]].unready;
    return run_ready_buckets();
}

/// In their order everywhere, or the workers would wait for each other.
Result<void> RingWorker::run_ready_buckets() {
    while (running_ < policy_.concurrent && !states_[next_bucket_].running &&
           states_[next_bucket_].unready == 0) {
        const std::uint32_t bucket = next_bucket_;
        next_bucket_ = static_cast<std::uint32_t>((bucket + 1) % buckets_.size());
        if (auto done = run(bucket); !done)
            return done;
    }
    return {};
}

Result<void> RingWorker::run(std::uint32_t bucket) {
    BucketState& state = states_[bucket];
    state.running = true;
    ++running_;
    for (std::uint32_t segment = state.first; segment < state.end; ++segment) {
        if (workers_ == 1 || segments_[segment].chunk != rank_)
            continue;
        if (auto sent = forward(segment); !sent)
            return sent;
    }
    for (const std::uint32_t segment : std::exchange(state.held, {})) {
        if (auto taken = take(segment); !taken)
            return taken;
    }
    if (state.arrivals == 0)  // alone
        finish(bucket);
    return {};
}

Result<void> RingWorker::received(const Arrival& arrival) {
    progress_->bytes_came();
    if (!arrival.complete)
        return {};
    const Message& message = arrival.message;
    if (message.layer >= segments_.size() || message.bytes != segments_[message.layer].bytes ||
        message.iteration != states_[segments_[message.layer].bucket].done + 1 ||
        arrived_[message.layer] == arrivals_of(segments_[message.layer])) {
        return Error{fmt::format(
            "worker {} sent {} bytes of segment {} in iteration {}, which is not its turn",
            (rank_ + workers_ - 1) % workers_, message.bytes, message.layer, message.iteration)};
    }
    ++arrived_[message.layer];
    BucketState& state = states_[segments_[message.layer].bucket];
    if (!state.running) {  // there is nothing to add to it yet
        state.held.push_back(message.layer);
        return {};
    }
    if (auto taken = take(message.layer); !taken)
        return taken;
    return run_ready_buckets();
}

/// One hop of a segment has ended here.
Result<void> RingWorker::take(std::uint32_t index) {
    const Segment& segment = segments_[index];
    BucketState& state = states_[segment.bucket];
    const std::size_t hop = first_hop(segment) + workers_ * (arrived_[index] - 1);
    if (hop + 1 < 2 * (workers_ - 1)) {
        if (auto sent = forward(index); !sent)
            return sent;
    }
    --state.arrivals_left;
    if (state.arrivals_left == 0)
        finish(segment.bucket);
    return {};
}

Result<void> RingWorker::forward(std::uint32_t index) {
    const Segment& segment = segments_[index];
    return next_.front().send({states_[segment.bucket].done + 1, index, segment.bytes});
}

void RingWorker::finish(std::uint32_t bucket) {
    BucketState& state = states_[bucket];
    ++state.done;
    state.running = false;
    state.unready = buckets_[bucket].layers.size();
    state.arrivals_left = state.arrivals;
    --running_;
    for (std::uint32_t segment = state.first; segment < state.end; ++segment)
        arrived_[segment] = 0;

    finished_ = (finished_ + 1) % buckets_.size();
    if (policy_.overlap) {
        for (const std::size_t layer : buckets_[bucket].layers)
            progress_->came_back(layer);
    } else if (finished_ == 0) {
        for (std::size_t layer = 0; layer < bucket_of_layer_.size(); ++layer)
            progress_->came_back(layer);
    }
}

Result<std::unique_ptr<Exchange>> RingStrategy::connect_by(const Job& job,
                                                           const Connector& connector) {
    const std::size_t size = job.workers.size();
    if (size == 0)
        return Error{fmt::format("job {} needs at least one worker", job.name)};
    std::vector<RingWorker::Links> links(size);
    Linker linker(job, connector, policy_.links);
    for (std::size_t rank = 0; size > 1 && rank < size; ++rank) {
        const std::size_t next = (rank + 1) % size;
        auto connection = linker.link(job.workers[rank], job.workers[next], false);
        if (!connection)
            return connection.error();
        links[rank].next = std::move(connection.value().from);
        links[next].previous = std::move(connection.value().to);
    }
    std::vector<WorkerNode> nodes;
    for (std::size_t rank = 0; rank < size; ++rank) {
        const auto progress = std::make_shared<Progress>(job.profile);
        nodes.push_back({std::make_unique<RingWorker>(job.profile, policy_, rank, size,
                                                      std::move(links[rank]), progress),
                         progress});
    }
    return start_exchange(std::move(nodes), {});
}

}  // namespace mercury::replay
