// SPDX-License-Identifier: MIT
//
// A TCP connection that carries layers, each a header and then its bytes.
//
// The bytes themselves are zeros that nobody looks at: the demo is about when they arrive. They
// are discarded in the kernel on arrival.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "common/result.hpp"

namespace mercury::replay {

/// Bytes of a layer: its gradient on the way to the server, its parameters on the way back, or
/// the next piece of either.
struct Message {
    std::uint32_t iteration = 0;
    std::uint32_t layer = 0;  // or a part of one, as both ends number them
    std::uint64_t bytes = 0;  // never 0
};

/// A piece of a message that has come in.
struct Arrival {
    Message message;
    std::uint64_t bytes = 0;  // in this piece
    bool complete = false;    // the last piece
    Clock::time_point when;
};

class Channel {
  public:
    using Receiver = std::function<Result<void>(const Arrival&)>;
    using RoomHandler = std::function<Result<void>()>;

    /// PEER is who is at the other end, for errors.
    Channel(Fd socket, std::string peer);

    Result<void> attach(Reactor& reactor, Receiver receiver);

    /// Late binding: whoever sends chooses the next message when TCP has room for it, that is
    /// while idle(); HAS_ROOM is called when that is so again.
    void bind_late(RoomHandler has_room) { has_room_ = std::move(has_room); }
    bool idle() const { return outgoing_.empty() && !waits_for_room_; }

    /// Behind everything sent before; returns at once.
    Result<void> send(const Message& message);

    std::uint64_t retransmits() const;                          // TCP segments, so far
    std::uint64_t bytes_moved() const { return bytes_moved_; }  // given to TCP or taken from it

  private:
    static constexpr std::size_t header_size = 20;
    using Header = std::array<unsigned char, header_size>;

    static Header encode(const Message& message);
    Result<Message> decode(const Header& header) const;

    Result<void> write_some();
    Result<void> ask_for_more();
    Result<void> read_some();
    Result<void> take_header(std::size_t bytes);
    Result<void> take_bytes(std::size_t bytes, Clock::time_point now);
    Result<void> want_write(bool wanted);

    Fd socket_;
    std::string peer_;
    Reactor* reactor_ = nullptr;
    Receiver receiver_;
    RoomHandler has_room_;  // empty: messages are bound when they are sent
    std::uint64_t bytes_moved_ = 0;

    std::deque<Message> outgoing_;
    std::uint64_t front_sent_ = 0;  // bytes of the front of outgoing_, its header included
    bool waits_for_room_ = false;   // EPOLLOUT is on

    Header header_{};
    std::size_t header_received_ = 0;
    Message incoming_;
    std::uint64_t incoming_left_ = 0;  // bytes of incoming_ that have not come yet
};

}  // namespace mercury::replay
