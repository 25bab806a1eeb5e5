// SPDX-License-Identifier: MIT
//
// What a training loop needs of the network, whatever the strategy: the seam between the trainer
// and the strategies that are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/result.hpp"
#include "layers/profile.hpp"
#include "replay/network.hpp"

namespace mercury::replay {

/// How one worker exchanges its gradients. All calls come from that worker's trainer thread.
class Communicator {
  public:
    Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    virtual ~Communicator() = default;

    /// The backward pass has computed LAYER's gradient. Does not wait for the network.
    virtual Result<void> push(std::size_t layer) = 0;

    /// Until what was pushed last for LAYER has come back from all workers: the next forward pass
    /// may use it. At once if LAYER was never pushed.
    virtual Result<void> wait(std::size_t layer) = 0;
};

/// One training job in the cluster: which model runs where.
struct Job {
    std::string name;
    unsigned number = 0;  // of the job in its marks, 0 to 255
    Profile profile;
    std::vector<std::size_t> workers;  // host of each rank
    std::vector<std::size_t> servers;  // host of each; the same hosts if co-located
    std::uint16_t first_port = 0;      // it may use 1000 ports from here on
};

/// The connections of one job on all its hosts, and the threads that serve them. The destructor
/// closes and joins all of them.
class Exchange {
  public:
    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    virtual ~Exchange() = default;

    virtual Communicator& worker(std::size_t rank) = 0;
};

/// A strategy and its parameters, e.g. bytescheduler with a partition size and a credit.
class Strategy {
  public:
    Strategy() = default;
    Strategy(const Strategy&) = delete;
    Strategy& operator=(const Strategy&) = delete;
    virtual ~Strategy() = default;

    /// Connects JOB's hosts in NETWORK, both of which outlive what is returned.
    virtual Result<std::unique_ptr<Exchange>> connect(const Job& job, const Network& network) = 0;
};

}  // namespace mercury::replay
