// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "common/result.hpp"
#include "transport/wire.hpp"

namespace mercury::transport {

/// One end of a control connection, after its preamble. Answers pings. What comes on it is served
/// in turn with all other channels and all data, however much it is.
class ControlChannel {
  public:
    using Receiver = std::function<Result<void>(Control)>;
    /// Called with why, when the connection is lost or what the peer says is wrong: nothing more
    /// comes. In the second case the peer can still be told.
    using Lost = std::function<void(const Error&)>;

    ControlChannel(Fd socket, Reactor& reactor);
    ControlChannel(const ControlChannel&) = delete;
    ControlChannel& operator=(const ControlChannel&) = delete;
    ~ControlChannel();

    Result<void> start();
    /// Who gets what comes from now on. An error of RECEIVER means that what it got is wrong.
    void set_receiver(Receiver receiver, Lost lost);
    /// Messages longer than this are refused.
    void set_limit(std::size_t bytes) { limit_ = bytes; }

    /// Does not wait; a peer that reads nothing is noticed by its silence.
    void send(const Control& message);
    void ping();
    /// Sends nothing more, once the peer has everything, and hears nothing more but its end.
    void finish();

    const Fd& socket() const { return socket_; }
    bool is_lost() const { return is_lost_; }
    /// Whether the peer has begun to ask for signs of life, as it does all the time from then on.
    bool is_kept_alive() const { return is_kept_alive_; }
    /// Whether the peer has left a ping unanswered for TIME. (It is not enough that nothing has
    /// come: this side may be the one that slept.)
    bool is_silent_for(std::chrono::milliseconds time) const;

  private:
    Result<void> read_some();
    Result<void> take_messages();
    Result<void> take(Control message);
    Result<void> write_some();
    void lose(const Error& why);

    Fd socket_;
    Reactor& reactor_;
    Receiver receiver_;
    Lost lost_;
    std::size_t limit_ = hello_bytes_max;
    std::optional<Clock::time_point> asked_;  // the first ping since something came
    bool is_lost_ = false;
    bool is_kept_alive_ = false;
    bool is_deaf_ = false;  // to a peer who has said something wrong, or whom nobody hears any more
    bool finishes_ = false;
    std::vector<std::byte> received_;
    std::vector<std::byte> unsent_;
};

}  // namespace mercury::transport
