// SPDX-License-Identifier: MIT
//
// Ring all-reduce of buckets of gradients, as PyTorch's DistributedDataParallel does it over gloo
// or NCCL: no servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "common/result.hpp"
#include "replay/channel.hpp"
#include "replay/communicator.hpp"
#include "replay/strategy_connect.hpp"
#include "replay/strategy_io.hpp"

namespace mercury::replay {

struct RingPolicy {
    std::uint64_t bucket;        // bytes at which a bucket is full
    std::uint64_t first_bucket;  // the same, of the first
    std::uint64_t segment;       // bytes of a message at most
    std::size_t concurrent;      // buckets that are reduced at the same time at most

    /// Without it the optimizer waits for all buckets, and the next forward pass for it: plain
    /// DDP. With it a layer is back when its bucket is.
    bool overlap;

    LinkOptions links;
};

/// Layers whose gradients are reduced together.
struct Bucket {
    std::vector<std::size_t> layers;
    std::uint64_t bytes = 0;
};

/// In the order in which their gradients are ready: from the last layer. A bucket is closed by the
/// layer that fills it, which it may exceed by.
std::vector<Bucket> fill_buckets(const Profile& profile, std::uint64_t first, std::uint64_t cap);

/// What goes round the ring as one message. Each bucket is N equal chunks for N workers, each
/// chunk a few segments. A segment of chunk c starts at worker c, and is added to at each of
/// N - 1 hops (reduce-scatter); then the sum goes N - 1 hops further (all-gather).
struct Segment {
    std::uint32_t bucket = 0;
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;  // never 0
};

class RingWorker final : public Node {
  public:
    /// NEXT and PREVIOUS are the links to the neighbours; a single worker has none.
    struct Links {
        Fd next;
        Fd previous;
    };
    RingWorker(const Profile& profile, const RingPolicy& policy, std::size_t rank,
               std::size_t workers, Links links, std::shared_ptr<Progress> progress);

    Result<void> attach(Reactor& reactor) override;
    Result<void> push(std::size_t layer) override;

  private:
    struct BucketState {
        std::uint32_t first = 0;   // of its segments
        std::uint32_t end = 0;     // one behind the last
        std::size_t arrivals = 0;  // of its segments here, in each iteration
        std::uint32_t done = 0;    // iterations

        // In the current iteration.
        std::size_t unready = 0;          // layers that have not been pushed
        std::size_t arrivals_left = 0;    // of arrivals
        bool running = false;             // is reduced now
        std::vector<std::uint32_t> held;  // segments that came before it ran
    };

    void lay_out(std::uint32_t bucket);
    std::size_t first_hop(const Segment& segment) const;
    std::size_t arrivals_of(const Segment& segment) const;
    Result<void> run_ready_buckets();
    Result<void> run(std::uint32_t bucket);
    Result<void> received(const Arrival& arrival);
    Result<void> take(std::uint32_t segment);
    Result<void> forward(std::uint32_t segment);
    void finish(std::uint32_t bucket);

    RingPolicy policy_;
    std::size_t rank_;
    std::size_t workers_;
    std::shared_ptr<Progress> progress_;
    std::deque<Channel> next_;  // none or one
    std::deque<Channel> previous_;

    std::vector<Bucket> buckets_;
    std::vector<std::uint32_t> bucket_of_layer_;
    std::vector<BucketState> states_;  // by bucket
    std::vector<Segment> segments_;
    std::vector<std::size_t> arrived_;  // by segment: times in this iteration
    std::uint32_t next_bucket_ = 0;     // to run
    std::size_t running_ = 0;           // buckets
    std::size_t finished_ = 0;          // buckets of this iteration
};

class RingStrategy final : public SocketStrategy {
  public:
    explicit RingStrategy(const RingPolicy& policy) : policy_(policy) {}

    Result<std::unique_ptr<Exchange>> connect_by(const Job& job,
                                                 const Connector& connector) override;

  private:
    RingPolicy policy_;
};

}  // namespace mercury::replay
