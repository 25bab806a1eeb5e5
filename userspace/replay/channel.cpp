// SPDX-License-Identifier: MIT
#include "replay/channel.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

constexpr std::uint32_t magic = 0x4d524559;  // "MREY"
constexpr std::size_t piece_max = std::size_t{1} << 20;

void put_u32(unsigned char* at, std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
        *at++ = static_cast<unsigned char>(value >> shift);
}

std::uint32_t get_u32(const unsigned char* at) {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i)
        value = value << 8 | at[i];
    return value;
}

}  // namespace

Channel::Channel(Fd socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {}

Result<void> Channel::attach(Reactor& reactor, Receiver receiver) {
    reactor_ = &reactor;
    receiver_ = std::move(receiver);
    return reactor.watch(socket_.get(), EPOLLIN, [this](std::uint32_t events) -> Result<void> {
        if ((events & EPOLLOUT) != 0) {
            if (auto written = outgoing_.empty() ? ask_for_more() : write_some(); !written)
                return written;
        }
        if ((events & ~std::uint32_t{EPOLLOUT}) != 0)
            return read_some();
        return {};
    });
}

Result<void> Channel::send(const Message& message) {
    outgoing_.push_back(message);
    if (waits_for_room_)
        return {};
    return write_some();
}

std::uint64_t Channel::retransmits() const {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
        return 0;
    return info.tcpi_total_retrans;
}

Channel::Header Channel::encode(const Message& message) {
    Header header{};
    put_u32(header.data(), magic);
    put_u32(header.data() + 4, message.iteration);
    put_u32(header.data() + 8, message.layer);
    put_u32(header.data() + 12, static_cast<std::uint32_t>(message.bytes >> 32));
    put_u32(header.data() + 16, static_cast<std::uint32_t>(message.bytes));
    return header;
}

Result<Message> Channel::decode(const Header& header) const {
    const Message message{
        get_u32(header.data() + 4), get_u32(header.data() + 8),
        std::uint64_t{get_u32(header.data() + 12)} << 32 | get_u32(header.data() + 16)};
    if (get_u32(header.data()) != magic || message.bytes == 0)
        return Error{fmt::format("{} sent something that is not a layer", peer_)};
    return message;
}

Result<void> Channel::write_some() {
    static std::vector<unsigned char> zeros(piece_max);

    while (!outgoing_.empty()) {
        const Message& message = outgoing_.front();
        Header header = encode(message);
        std::array<iovec, 2> parts{};
        const std::size_t header_sent = std::min<std::uint64_t>(front_sent_, header_size);
        parts[0] = {header.data() + header_sent, header_size - header_sent};
        const std::uint64_t payload_sent = front_sent_ - header_sent;
        parts[1] = {zeros.data(), std::min<std::uint64_t>(message.bytes - payload_sent, piece_max)};
        msghdr packet{};
        packet.msg_iov = parts.data();
        packet.msg_iovlen = parts.size();

        const ssize_t sent = sendmsg(socket_.get(), &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN)
                return want_write(true);
            return system_error(fmt::format("cannot send to {}", peer_));
        }
        const std::size_t offered = parts[0].iov_len + parts[1].iov_len;
        front_sent_ += static_cast<std::uint64_t>(sent);
        bytes_moved_ += static_cast<std::uint64_t>(sent);
        if (static_cast<std::size_t>(sent) < offered)
            return want_write(true);
        if (front_sent_ == header_size + message.bytes) {
            outgoing_.pop_front();
            front_sent_ = 0;
        }
    }
    // With late binding EPOLLOUT says when there is room for the next message.
    return want_write(static_cast<bool>(has_room_));
}

Result<void> Channel::ask_for_more() {
    if (auto off = want_write(false); !off)
        return off;
    return has_room_();
}

Result<void> Channel::want_write(bool wanted) {
    if (wanted == waits_for_room_)
        return {};
    waits_for_room_ = wanted;
    return reactor_->change(socket_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

Result<void> Channel::read_some() {
    thread_local std::vector<unsigned char> unused(piece_max);
    const auto now = Clock::now();
    for (;;) {
        const bool in_header = incoming_left_ == 0;
        const std::size_t wanted = in_header ? header_size - header_received_
                                             : std::min<std::uint64_t>(incoming_left_, piece_max);
        // MSG_TRUNC makes TCP discard the bytes instead of copying them.
        const ssize_t received =
            in_header ? recv(socket_.get(), header_.data() + header_received_, wanted, MSG_DONTWAIT)
                      : recv(socket_.get(), unused.data(), wanted, MSG_DONTWAIT | MSG_TRUNC);
        if (received == 0)
            return Error{fmt::format("{} closed the connection", peer_)};
        if (received < 0) {
            if (errno == EAGAIN)
                return {};
            return system_error(fmt::format("cannot receive from {}", peer_));
        }

        const auto bytes = static_cast<std::size_t>(received);
        bytes_moved_ += bytes;
        if (auto taken = in_header ? take_header(bytes) : take_bytes(bytes, now); !taken)
            return taken;
        if (bytes < wanted)
            return {};
    }
}

Result<void> Channel::take_header(std::size_t bytes) {
    header_received_ += bytes;
    if (header_received_ < header_size)
        return {};
    header_received_ = 0;
    const auto message = decode(header_);
    if (!message)
        return message.error();
    incoming_ = message.value();
    incoming_left_ = incoming_.bytes;
    return {};
}

Result<void> Channel::take_bytes(std::size_t bytes, Clock::time_point now) {
    incoming_left_ -= bytes;
    return receiver_({incoming_, bytes, incoming_left_ == 0, now});
}

}  // namespace mercury::replay
