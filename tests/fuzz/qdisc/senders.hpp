// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "random.hpp"
#include "world.hpp"

namespace fuzz {

/// Traffic of all sorts from one end of a world to the other, until it is stopped: TCP, and
/// datagrams, plain, as GSO, tagged, IPv4, IPv6 and neither, marked or not, with all priorities
/// and deadlines. Threads, so that they run on every processor.
class Senders {
  public:
    Senders(const World& world, Random& random);
    ~Senders() { stop(); }
    Senders(const Senders&) = delete;
    Senders& operator=(const Senders&) = delete;

    /// Returns when nobody sends any more, until resume().
    void pause();
    void resume();
    /// All sockets are closed; connections are reset.
    void stop();
    /// Datagrams and pieces of streams that have been sent.
    std::uint64_t sent() const { return sent_; }

  private:
    void send_datagrams(std::uint64_t seed);
    void send_streams(std::uint64_t seed);
    void receive_streams();
    /// Waits while there is a pause. False: stop.
    bool may_go_on();

    const World& world_;
    std::atomic<std::uint64_t> sent_{0};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> pausing_{false};
    std::atomic<unsigned> waiting_{0};
    unsigned pausable_ = 0;
    std::vector<std::jthread> threads_;
};

}  // namespace fuzz
