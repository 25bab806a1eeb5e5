// SPDX-License-Identifier: MIT
//
// Who of those that wait to be sent goes next: the heart of every parameter-server strategy.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "common/reactor.hpp"
#include "common/result.hpp"
#include "replay/channel.hpp"
#include "replay/strategy_plan.hpp"

namespace mercury::replay {

enum class Order {
    ready,     // as they become ready
    priority,  // the earlier iteration, and in it the layer nearer to the input
    enforced,  // the same order, and each waits for all that are to go before it
};

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

struct SendPolicy {
    Order order = Order::ready;

    /// What goes next to a peer is chosen when TCP has room for it, instead of being queued behind
    /// the peer's connection as soon as it may go.
    bool late = false;

    /// Bytes of a message at most; after it the choice is open again.
    std::uint64_t piece = unlimited;

    /// Bytes that may be on the way to all peers together before they acknowledge some. A larger
    /// message goes alone.
    std::uint64_t credit = unlimited;

    /// What each message costs its sender before it goes: the peers' messages one after the other,
    /// while TCP transmits earlier ones.
    std::chrono::nanoseconds startup{0};
};

/// Sends chunks of a plan to peers, each over its own channel, by a policy.
///
/// The bytes of a chunk are numbered through all iterations: in iteration i, from 1, chunk c is
/// the positions (i - 1) * bytes(c) to i * bytes(c).
class Sender {
  public:
    /// PLAN must outlive the sender.
    Sender(const SendPolicy& policy, const Plan& plan) : policy_(policy), plan_(plan) {}

    /// Before attach(). CHANNEL must outlive the sender. A peer takes the chunks of one server.
    void add_peer(Channel& channel, std::uint32_t server);
    Result<void> attach(Reactor& reactor);

    /// The bytes of CHUNK below the position END may go to PEER. Call pump() when all is offered.
    void offer(std::size_t peer, std::uint32_t chunk, std::uint64_t end);

    /// A peer has BYTES that it had been sent.
    void acknowledge(std::uint64_t bytes) { in_flight_ -= bytes; }

    /// Sends what may go now.
    Result<void> pump();

    /// Where PEER's bytes of CHUNK that have not been chosen yet begin.
    std::uint64_t position(std::size_t peer, std::uint32_t chunk) const {
        return peers_.at(peer).streams.at(chunk).sent;
    }

  private:
    struct Key {  // smaller goes first
        std::uint64_t rank = 0;
        std::uint32_t chunk = 0;
        friend auto operator<=>(const Key&, const Key&) = default;
    };
    struct Stream {
        std::uint64_t offered = 0;  // position
        std::uint64_t sent = 0;     // position
        std::uint64_t ready = 0;    // when it became ready, counted in such events
    };
    struct Peer {
        Channel* channel = nullptr;
        std::vector<Stream> streams;        // by chunk
        std::set<Key> waiting;              // chunks that have something to send
        std::vector<std::uint32_t> chunks;  // the peer's, in order
        std::size_t turn = 0;               // of chunks: sent next if the order is enforced
    };
    struct Chosen {
        Peer* peer = nullptr;
        Message message;
    };

    Key key_of(std::uint32_t chunk, const Stream& stream) const;
    bool may_send(const Peer& peer) const;
    Peer* most_urgent();
    Message next_message(const Peer& peer) const;
    void take(Peer& peer, const Message& message);
    Result<void> prepare(const Chosen& chosen);

    SendPolicy policy_;
    const Plan& plan_;
    std::deque<Peer> peers_;
    std::uint64_t ready_events_ = 0;
    std::uint64_t in_flight_ = 0;  // bytes, if there is a credit

    Timer prepared_timer_;
    std::optional<Chosen> preparing_;  // pays the start-up cost now
    Clock::time_point prepared_at_;    // its end, or of the last one
};

}  // namespace mercury::replay
