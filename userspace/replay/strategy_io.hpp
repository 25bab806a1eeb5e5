// SPDX-License-Identifier: MIT
//
// What all strategies over sockets share: a thread with an event loop for each worker and server,
// and the blocking calls of the trainers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "common/result.hpp"
#include "layers/profile.hpp"
#include "replay/communicator.hpp"

namespace mercury::replay {

/// Which layers of a worker have come back: shared by its trainer and its I/O thread.
class Progress {
  public:
    /// PROFILE must outlive it.
    explicit Progress(const Profile& profile);

    // For the trainer.
    Result<void> push(std::size_t layer);
    Result<void> wait(std::size_t layer);

    // For the I/O thread.
    void bytes_came() { ++moved_; }
    void came_back(std::size_t layer);
    void fail(const Error& error);

  private:
    const Profile& profile_;
    std::atomic<std::uint64_t> moved_{0};  // arrivals of any size
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<bool> out_;  // by layer: pushed and not back yet
    std::optional<Error> failure_;
};

/// What one I/O thread does with its sockets: they close when it is destroyed. All calls come from
/// the I/O thread.
class Node {
  public:
    Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    virtual ~Node() = default;

    virtual Result<void> attach(Reactor& reactor) = 0;

    /// The trainer has pushed LAYER.
    virtual Result<void> push(std::size_t layer) = 0;
};

/// The first error of an exchange: the others follow from it.
class FirstError {
  public:
    /// Returns the first one, which is ERROR if there was none yet.
    Error keep(const Error& error);

  private:
    std::mutex mutex_;
    std::optional<Error> first_;
};

/// Runs a node until it fails or is told to stop.
class IoThread {
  public:
    /// PROGRESS, which a server has none of, learns of a failure.
    IoThread(std::unique_ptr<Node> node, std::shared_ptr<Progress> progress,
             std::shared_ptr<FirstError> first_error);
    IoThread(const IoThread&) = delete;
    IoThread& operator=(const IoThread&) = delete;
    ~IoThread();

    /// From any thread.
    void push(std::size_t layer);
    void request_stop();

  private:
    void run(Node& node);
    Result<void> serve(Node& node);
    Result<void> take_pushed(Node& node, Reactor& reactor);

    Fd wake_;
    std::mutex mutex_;
    std::vector<std::size_t> pushed_;  // layers that the node has not seen yet
    bool stop_ = false;
    std::shared_ptr<Progress> progress_;
    std::shared_ptr<FirstError> first_error_;
    std::thread thread_;  // last: it uses all others
};

struct WorkerNode {
    std::unique_ptr<Node> node;
    std::shared_ptr<Progress> progress;
};

std::unique_ptr<Exchange> start_exchange(std::vector<WorkerNode> workers,
                                         std::vector<std::unique_ptr<Node>> servers);

}  // namespace mercury::replay
