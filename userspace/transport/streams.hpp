// SPDX-License-Identifier: MIT
//
// The server's data connections: one a class, worker and direction. Private to the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "common/result.hpp"
#include "transport/wire.hpp"

namespace mercury::transport {

class Job;

/// A data connection gives others their turn after about this much.
constexpr std::size_t turn_bytes = std::size_t{256} << 10;

/// Collects a header that may come in pieces.
class HeaderReader {
  public:
    /// closed: at its end, between two frames.
    enum class State { incomplete, complete, closed };
    Result<State> read(const Fd& socket);
    /// Of the complete header; the next read() starts a new one.
    Result<FrameHeader> take();

  private:
    FrameHeaderBytes bytes_{};
    std::size_t size_ = 0;
};

/// Adds what a worker pushes in one class to the job's sums as it arrives.
class PushStream {
  public:
    PushStream(Fd socket, Reactor& reactor, Job& job, std::size_t rank, std::size_t priority_class);
    PushStream(const PushStream&) = delete;
    PushStream& operator=(const PushStream&) = delete;
    ~PushStream();

    Result<void> start();
    /// Reads no more. What ends a job may be called by one of its streams, so that they can only
    /// be destroyed later.
    void stop();
    /// It waited for room in the sum of its tensor, and there may be some now.
    void resume();
    /// Whether a tensor is coming in: it has begun, and does not wait for room.
    bool is_coming_in() const { return left_ != 0 && !waits_for_room_; }
    /// While it is held it reads nothing.
    Result<void> hold(bool held);

  private:
    Result<void> readable(std::uint32_t events);
    Result<void> begin_frame();
    Result<void> pause(std::uint32_t events);
    Result<void> want_read();
    Error closed_within() const;

    Fd socket_;
    Reactor& reactor_;
    Job& job_;
    std::size_t rank_;
    std::size_t priority_class_;
    HeaderReader header_;
    std::size_t tensor_ = 0;  // of the current frame
    std::uint64_t left_ = 0;  // bytes of it
    bool waits_for_room_ = false;
    bool held_ = false;
    bool stopped_ = false;
};

/// Sends what is finished to one worker, in the order (round, tensor).
class PullStream {
  public:
    PullStream(Fd socket, Reactor& reactor, Job& job, std::size_t rank, std::size_t priority_class);
    PullStream(const PullStream&) = delete;
    PullStream& operator=(const PullStream&) = delete;
    ~PullStream();

    Result<void> start();
    /// Sends no more.
    void stop();
    /// TENSOR, of ROUND, has bytes for this worker.
    void offer(std::uint64_t round, std::size_t tensor);

  private:
    void serve(const Result<void>& outcome);
    Result<void> read_end();
    Result<void> write_some();
    bool begin_frame();
    Result<void> want_write(bool wanted);

    Fd socket_;
    Reactor& reactor_;
    Job& job_;
    std::size_t rank_;
    std::size_t priority_class_;
    std::set<std::pair<std::uint64_t, std::size_t>> offered_;  // (round, tensor)
    FrameHeaderBytes header_{};                                // of the current frame
    std::size_t header_left_ = 0;
    std::size_t tensor_ = 0;
    std::size_t left_ = 0;  // bytes of the current frame
    bool waits_for_room_ = false;
    bool closed_ = false;  // by the worker, which may have left
};

}  // namespace mercury::transport
