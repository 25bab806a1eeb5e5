// SPDX-License-Identifier: MIT
//
// The parameter-server engine: one for all strategies that have servers. What they differ in is a
// policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "common/result.hpp"
#include "replay/channel.hpp"
#include "replay/communicator.hpp"
#include "replay/sockets.hpp"
#include "replay/strategy_connect.hpp"
#include "replay/strategy_io.hpp"
#include "replay/strategy_plan.hpp"
#include "replay/strategy_sender.hpp"

namespace mercury::replay {

struct PsPolicy {
    /// Layers are cut into slices of so many bytes; 0: each layer into equal shares of the servers.
    std::uint64_t slice = 0;

    SendPolicy push;  // of the workers
    SendPolicy pull;  // of the servers

    /// The server returns what all workers have delivered of a chunk as it comes in, instead of
    /// whole chunks.
    bool streaming = false;

    LinkOptions links;
};

/// The I/O side of one worker: one connection each way to each server.
class PsWorker final : public Node {
  public:
    /// LINKS by server. PROFILE must outlive it.
    PsWorker(const Profile& profile, std::shared_ptr<const Plan> plan, const PsPolicy& policy,
             Ends links, std::shared_ptr<Progress> progress);

    Result<void> attach(Reactor& reactor) override;
    Result<void> push(std::size_t layer) override;

  private:
    Result<void> pulled(std::uint32_t server, const Arrival& arrival);
    Result<void> acknowledged(std::uint32_t server, const Arrival& arrival);

    const Profile& profile_;
    std::shared_ptr<const Plan> plan_;
    bool credits_;
    std::shared_ptr<Progress> progress_;
    std::deque<Channel> push_;  // by server; a deque keeps its elements where they are
    std::deque<Channel> pull_;
    Sender sender_;
    std::vector<std::uint64_t> pushed_;        // position, by chunk
    std::vector<std::uint64_t> acknowledged_;  // position, by chunk
    std::vector<std::uint64_t> returned_;      // position, by chunk
    std::vector<std::uint64_t> missing_;       // bytes that have not come back, by layer
};

/// A parameter server. It counts who has delivered what: no byte is kept or summed.
class PsServer final : public Node {
  public:
    /// LINKS by worker.
    PsServer(std::shared_ptr<const Plan> plan, const PsPolicy& policy, std::uint32_t index,
             Ends links);

    Result<void> attach(Reactor& reactor) override;
    Result<void> push(std::size_t layer) override;

  private:
    Result<void> pushed(std::size_t worker, const Arrival& arrival);
    Result<void> answer(std::uint32_t chunk);

    std::shared_ptr<const Plan> plan_;
    bool streaming_;
    bool acknowledges_;
    std::uint32_t index_;
    std::deque<Channel> push_;  // by worker; a deque keeps its elements where they are
    std::deque<Channel> pull_;
    Sender sender_;
    std::vector<std::vector<std::uint64_t>> delivered_;  // position, by worker and chunk
    std::vector<std::uint64_t> answered_;                // position, by chunk
};

/// A strategy that is nothing but a policy.
class PsStrategy final : public SocketStrategy {
  public:
    explicit PsStrategy(const PsPolicy& policy) : policy_(policy) {}

    Result<std::unique_ptr<Exchange>> connect_by(const Job& job,
                                                 const Connector& connector) override;

  private:
    PsPolicy policy_;
};

}  // namespace mercury::replay
