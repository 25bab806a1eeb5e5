// SPDX-License-Identifier: MIT
//
// A worker's side of push-pull: hands over gradients and gets back their sum over all workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Beside this header, and so also where it is installed.
#include "../common/result.hpp"
#include "element.hpp"
#include "in_flight.hpp"
#include "marking_status.hpp"

namespace mercury::transport {

/// A tensor that all workers of a job have, with the same shape.
struct Tensor {
    std::string key;  // 1 to 256 bytes of UTF-8, unique in the job
    ElementType type = ElementType::f32;
    std::size_t elements = 0;  // at least 1
    /// 0 is needed first. Tensors of one class share a connection, in the order (round, place in
    /// the list); classes are ordered by the network.
    unsigned priority_class = 0;
    Reduction reduction = Reduction::sum;
};

struct WorkerOptions {
    std::string job;  // its name at the servers, 1 to 256 bytes
    std::string token;
    unsigned rank = 0;
    unsigned workers = 1;
    /// "HOST:PORT" or "HOST:FIRST-LAST", one or more servers each; the same list at all workers.
    std::vector<std::string> servers;
    SumOrder order = SumOrder::arrival;

    /// Where mercuryd listens, which has the connections of this worker marked for sch_mercury, as
    /// that of each server's host does there; "": the usual place; nothing: no hints. Without a
    /// daemon they have SO_PRIORITY. Needs no privilege.
    std::optional<std::string> hints{""};
    /// Instead, marks of the push and pull connections by class, which both ends set themselves and
    /// need CAP_NET_ADMIN for; empty: none. See default_marks().
    std::vector<std::uint32_t> push_marks;
    std::vector<std::uint32_t> pull_marks;
    bool dscp = false;  // AF41 for class 0 down to AF11, for switches with priority queues

    /// Bytes that may be underway to this worker in all connections together, from the switch's
    /// buffer and the bandwidth-delay product; 0: TCP decides.
    std::size_t in_flight = in_flight_default;
    /// To reach all servers and be accepted.
    std::chrono::milliseconds join_time{60'000};
    /// A server that says nothing for so long is dead.
    std::chrono::milliseconds silence{10'000};
};

struct Marks {
    std::vector<std::uint32_t> push;  // by class
    std::vector<std::uint32_t> pull;
};
/// For JOB (0 to 255) of sch_mercury.
Marks default_marks(unsigned job, std::size_t classes);

class Worker {
  public:
    /// One round of one tensor.
    struct Ticket {
        std::size_t tensor = 0;
        std::uint64_t round = 0;
    };
    /// Called in the worker's own thread, which moves no byte meanwhile.
    using Callback = std::function<void(const Result<void>& outcome)>;

    /// Connects to all servers, which need not be up yet; the other workers need not be there.
    static Result<std::unique_ptr<Worker>> join(WorkerOptions options, std::vector<Tensor> tensors);

    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    /// Leaves the job, and waits until the servers know, for SILENCE at most. What is in flight is
    /// abandoned, which ends the job for all workers.
    ~Worker();

    std::optional<std::size_t> index_of(std::string_view key) const;

    /// Of this worker's connections. From any thread; never waits.
    MarkingStatus marking() const;

    /// Starts a round of TENSOR (its index in the list): pushes BUFFER and replaces it by the
    /// reduced tensor. BUFFER is the worker's until the ticket has been waited for or CALLBACK
    /// was called. From any thread; never waits for the network.
    ///
    /// An error, and CALLBACK is not called, if the buffer has the wrong size, if the tensor is
    /// still in flight, or if the job has failed.
    Result<Ticket> push_pull(std::size_t tensor, std::span<std::byte> buffer,
                             Callback callback = {});

    /// Until the ticket's round is complete, or with the error that ended the job. From any
    /// thread, but an error in a callback if it would have to wait.
    Result<void> wait(const Ticket& ticket);
    /// The same for TIME at most; false if the round is still in flight then.
    Result<bool> wait_for(const Ticket& ticket, std::chrono::milliseconds time);

  private:
    class Impl;
    explicit Worker(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace mercury::transport
