// SPDX-License-Identifier: MIT
//
// Servers and workers on loopback, in this process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/server.hpp"
#include "transport/worker.hpp"

namespace mercury::transport {

/// A server that runs in a thread of its own until it goes.
class ServerThread {
  public:
    explicit ServerThread(ServerOptions options = {});
    ServerThread(const ServerThread&) = delete;
    ServerThread& operator=(const ServerThread&) = delete;
    ~ServerThread();

    std::string address() const { return server_->address().to_string(); }
    /// Ends it, as a signal would.
    void stop();

  private:
    std::unique_ptr<Server> server_;
    std::thread thread_;
};

struct World {
    explicit World(std::size_t servers, ServerOptions options = {});

    /// Options of worker RANK of WORKERS of job "test".
    WorkerOptions options(unsigned rank, unsigned workers) const;
    /// All workers, joined at the same time.
    std::vector<std::unique_ptr<Worker>> join(unsigned workers, const std::vector<Tensor>& tensors,
                                              SumOrder order = SumOrder::arrival) const;

    std::vector<std::unique_ptr<ServerThread>> servers;
};

}  // namespace mercury::transport
