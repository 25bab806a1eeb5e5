// SPDX-License-Identifier: MIT
#include "replay/strategy_sender.hpp"

#include <algorithm>

namespace mercury::replay {

void Sender::add_peer(Channel& channel, std::uint32_t server) {
    const auto& chunks = plan_.chunks();
    Peer& peer = peers_.emplace_back();
    peer.channel = &channel;
    peer.streams.resize(chunks.size());
    for (std::uint32_t chunk = 0; chunk < chunks.size(); ++chunk) {
        if (chunks[chunk].server == server)
            peer.chunks.push_back(chunk);
    }
    if (policy_.late)
        channel.bind_late([this] { return pump(); });
}

Result<void> Sender::attach(Reactor& reactor) {
    return prepared_timer_.attach(reactor, [this]() -> Result<void> {
        const Chosen chosen = *preparing_;
        preparing_.reset();
        if (auto sent = chosen.peer->channel->send(chosen.message); !sent)
            return sent;
        return pump();
    });
}

void Sender::offer(std::size_t peer_index, std::uint32_t chunk, std::uint64_t end) {
    Peer& peer = peers_.at(peer_index);
    Stream& stream = peer.streams.at(chunk);
    if (stream.offered == stream.sent) {
        stream.ready = ++ready_events_;
        peer.waiting.insert(key_of(chunk, stream));
    }
    stream.offered = end;
}

Result<void> Sender::pump() {
    while (!preparing_) {
        Peer* const peer = most_urgent();
        if (peer == nullptr)
            return {};
        const Message message = next_message(*peer);
        if (policy_.credit != unlimited) {
            if (in_flight_ != 0 && in_flight_ + message.bytes > policy_.credit)
                return {};
            in_flight_ += message.bytes;
        }
        take(*peer, message);
        auto sent =
            policy_.startup.count() > 0 ? prepare({peer, message}) : peer->channel->send(message);
        if (!sent)
            return sent;
    }
    return {};
}

Sender::Key Sender::key_of(std::uint32_t chunk, const Stream& stream) const {
    if (policy_.order == Order::ready)
        return {stream.ready, chunk};
    return {stream.sent / plan_.chunks()[chunk].bytes, chunk};
}

bool Sender::may_send(const Peer& peer) const {
    if (peer.waiting.empty() || (policy_.late && !peer.channel->idle()))
        return false;
    return policy_.order != Order::enforced ||
           peer.waiting.begin()->chunk == peer.chunks[peer.turn];
}

Sender::Peer* Sender::most_urgent() {
    Peer* best = nullptr;
    for (Peer& peer : peers_) {
        if (may_send(peer) && (best == nullptr || *peer.waiting.begin() < *best->waiting.begin()))
            best = &peer;
    }
    return best;
}

Message Sender::next_message(const Peer& peer) const {
    const std::uint32_t chunk = peer.waiting.begin()->chunk;
    const Stream& stream = peer.streams[chunk];
    const std::uint64_t size = plan_.chunks()[chunk].bytes;
    const std::uint64_t iteration = stream.sent / size + 1;
    return {
        static_cast<std::uint32_t>(iteration), chunk,
        std::min({stream.offered - stream.sent, iteration * size - stream.sent, policy_.piece})};
}

void Sender::take(Peer& peer, const Message& message) {
    const std::uint32_t chunk = message.layer;
    Stream& stream = peer.streams[chunk];
    peer.waiting.erase(peer.waiting.begin());
    stream.sent += message.bytes;
    if (stream.sent < stream.offered)
        peer.waiting.insert(key_of(chunk, stream));
    if (policy_.order == Order::enforced && stream.sent % plan_.chunks()[chunk].bytes == 0)
        peer.turn = (peer.turn + 1) % peer.chunks.size();
}

Result<void> Sender::prepare(const Chosen& chosen) {
    preparing_ = chosen;
    prepared_at_ = std::max(Clock::now(), prepared_at_) + policy_.startup;
    return prepared_timer_.arm(prepared_at_);
}

}  // namespace mercury::replay
