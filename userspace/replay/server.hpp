// SPDX-License-Identifier: MIT
//
// The parameter server of the demo: it has one worker, so that its sum is what it was sent.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "replay/channel.hpp"
#include "replay/sockets.hpp"

namespace mercury::replay {

/// When bytes go back to the worker.
enum class Answer {
    whole_layers,  // once the last byte of the layer has arrived
    at_once,       // as they arrive: push and pull of a layer overlap
};

struct ServerLog {
    std::vector<Arrival> pushed;
    std::uint64_t retransmits = 0;
};

/// Serves on a thread of its own until stop() or an error.
class Server {
  public:
    /// What comes in on push connection i goes back on pull connection i.
    Server(Ends ends, Answer answer);
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server();

    /// Ends the thread; call it once. An error is what the server died of before.
    Result<ServerLog> stop();

  private:
    Result<ServerLog> serve(Ends ends) const;
    void request_stop() const;

    Answer answer_;
    Fd stop_requested_;
    Result<ServerLog> outcome_;
    std::thread thread_;
};

}  // namespace mercury::replay
