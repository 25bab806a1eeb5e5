// SPDX-License-Identifier: MIT
//
// One training job at one server. Private to the server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/reactor.hpp"
#include "common/result.hpp"
#include "transport/accumulator.hpp"
#include "transport/control_channel.hpp"
#include "transport/job_hints.hpp"
#include "transport/server.hpp"
#include "transport/sockets.hpp"
#include "transport/streams.hpp"
#include "transport/wire.hpp"

namespace mercury::transport {

/// Bytes that a job of these ranges allocates; UINT64_MAX if that is more than can be counted.
std::uint64_t memory_of(const Join& join);

class Job {
  public:
    /// ENDED is called once: when all workers have left, without a reason, or when the job failed.
    using Ended = std::function<void(const std::optional<Error>& why)>;

    /// FIRST has been checked against the server's limits.
    Job(std::string name, const Join& first, const ServerOptions& options, Reactor& reactor,
        Ended ended);

    /// A worker comes in, which keeps CONTROL, and is to be welcomed; or the reason why it may not.
    Result<void> join(const Join& join, std::unique_ptr<ControlChannel>& control, std::string peer,
                      const Session& session);
    void welcome(std::size_t rank);
    /// A data connection for the worker whose session ATTACHMENT names.
    bool owns(const Session& session) const;
    Result<void> attach(ConnectionKind kind, const Attachment& attachment, Fd socket);

    /// Once every now and then: ends the job if a worker is silent, late or stuck.
    void check(Clock::time_point now);
    /// Tells all workers and ends the job.
    void fail(const std::string& why);
    /// The same, with the worker to blame in front.
    void fail(std::size_t rank, const std::string& what);

    const std::string& name() const { return name_; }
    std::uint64_t memory() const { return memory_; }
    /// Left over from a job that has ended, with their peers: they still carry the reason.
    std::vector<std::pair<std::unique_ptr<ControlChannel>, std::string>> take_channels();

    // For the streams.
    const TensorRange& range(std::size_t tensor) const { return first_.tensors[tensor]; }
    std::size_t tensors() const { return sums_.size(); }
    Accumulator& sum(std::size_t tensor) { return sums_[tensor]; }
    bool whole_ranges() const { return options_.whole_ranges; }
    bool has_ended() const { return has_ended_; }
    /// Whether some worker has left: no new round can be finished. Then, what RANK is told that
    /// pushes TENSOR.
    bool is_left() const;
    std::string pushes_in_vain(std::size_t rank, std::size_t tensor) const;
    void begin(std::uint64_t round);  // of some tensor
    void pushed(std::size_t tensor);  // bytes were added to it
    void pulled(std::size_t tensor);  // a socket took bytes of it
    void pause(std::size_t tensor, PushStream& stream);
    /// While a tensor of RANK is coming in, its less urgent classes are held: their bytes would
    /// queue in the switch with those of the tensor, which knows no classes, and take as much of
    /// the way as their windows allow. One that waits for room holds nobody: what it waits for may
    /// depend on them.
    void put_in_order(std::size_t rank);

  private:
    struct Member {
        std::string peer;
        std::unique_ptr<ControlChannel> control;  // none: not joined yet
        Session session{};
        std::vector<std::unique_ptr<PushStream>> push;  // by class
        std::vector<std::unique_ptr<PullStream>> pull;
        bool left = false;
    };

    Result<void> agrees(const Join& join) const;
    bool is_due(std::size_t tensor, std::size_t rank) const;
    void offer(std::size_t tensor, std::size_t rank);
    Result<void> received(std::size_t rank, const Control& message);
    void leave(std::size_t rank);
    bool is_done_with_everything(std::size_t rank) const;
    std::string describe(std::size_t rank) const;
    void check_silence();
    void check_stall(Clock::time_point now);
    void blame_for_stall(std::size_t tensor);
    void resume_paused(std::size_t tensor);
    void give_hints();
    SocketOptions socket_options(ConnectionKind kind, std::size_t priority_class);

    std::string name_;
    Join first_;
    const ServerOptions& options_;
    Reactor& reactor_;
    Ended ended_;
    bool has_ended_ = false;
    std::size_t classes_ = 0;
    std::optional<JobHints> hints_;
    std::uint64_t memory_ = 0;
    Clock::time_point created_ = Clock::now();

    std::vector<Accumulator> sums_;                 // by tensor
    std::vector<Clock::time_point> progress_;       // when bytes last moved, by tensor
    std::vector<std::vector<PushStream*>> paused_;  // for want of room, by tensor
    std::vector<Member> members_;                   // by rank
    std::size_t joined_ = 0;
};

}  // namespace mercury::transport
