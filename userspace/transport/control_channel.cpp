// SPDX-License-Identifier: MIT
#include "transport/control_channel.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "transport/sockets.hpp"

namespace mercury::transport {
namespace {

/// Little, so that a flood of messages costs the others little.
constexpr std::size_t read_size = std::size_t{16} << 10;

}  // namespace

ControlChannel::ControlChannel(Fd socket, Reactor& reactor)
    : socket_(std::move(socket)), reactor_(reactor) {}

ControlChannel::~ControlChannel() {
    reactor_.unwatch(socket_.get());
}

Result<void> ControlChannel::start() {
    return reactor_.watch(
        socket_.get(), EPOLLIN,
        [this](std::uint32_t events) -> Result<void> {
            auto done = (events & EPOLLOUT) != 0 ? write_some() : Result<void>{};
            if (done && (events & ~std::uint32_t{EPOLLOUT}) != 0)
                done = read_some();
            if (!done)
                lose(done.error());
            return {};
        },
        0, this);
}

void ControlChannel::set_receiver(Receiver receiver, Lost lost) {
    receiver_ = std::move(receiver);
    lost_ = std::move(lost);
}

void ControlChannel::send(const Control& message) {
    if (is_lost_ || finishes_)
        return;
    const auto bytes = encode(message);
    unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
    if (const auto written = write_some(); !written)
        lose(written.error());
}

void ControlChannel::ping() {
    if (!asked_)
        asked_ = Clock::now();
    send(Ping{});
}

void ControlChannel::finish() {
    if (is_lost_)
        return;
    finishes_ = true;
    is_deaf_ = true;
    if (const auto written = write_some(); !written)
        lose(written.error());
}

bool ControlChannel::is_silent_for(std::chrono::milliseconds time) const {
    if (!asked_ || Clock::now() - *asked_ <= time)
        return false;
    std::byte next{};
    return recv(socket_.get(), &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

Result<void> ControlChannel::write_some() {
    while (!unsent_.empty()) {
        const ssize_t sent =
            ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            return connection_error();
        unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
    }
    if (finishes_ && unsent_.empty())
        shutdown(socket_.get(), SHUT_WR);
    return reactor_.change(socket_.get(), unsent_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

Result<void> ControlChannel::read_some() {
    std::array<std::byte, read_size> piece{};
    const ssize_t size = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (size < 0)
        return errno == EAGAIN ? Result<void>{} : Result<void>{connection_error()};
    if (size == 0)
        return Error{"closed the connection"};
    asked_.reset();
    if (is_deaf_)
        return {};
    received_.insert(received_.end(), piece.begin(), piece.begin() + size);
    if (const auto taken = take_messages(); !taken) {
        is_deaf_ = true;
        const auto lost = lost_;  // it may set another one
        lost(taken.error());
    }
    return {};
}

Result<void> ControlChannel::take_messages() {
    std::size_t taken = 0;
    while (received_.size() - taken >= control_prefix_size) {
        const std::span rest = std::span(received_).subspan(taken);
        const auto length = decode_control_length(rest.first<control_prefix_size>(), limit_);
        if (!length)
            return length.error();
        if (rest.size() - control_prefix_size < length.value())
            break;
        auto message = decode_control(rest.subspan(control_prefix_size, length.value()));
        if (!message)
            return message.error();
        taken += control_prefix_size + length.value();
        if (auto received = take(std::move(message).value()); !received)
            return received;
        if (is_lost_ || is_deaf_)
            return {};
    }
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(taken));
    return {};
}

Result<void> ControlChannel::take(Control message) {
    if (std::holds_alternative<Ping>(message)) {
        is_kept_alive_ = true;
        if (unsent_.empty())  // or the peer reads nothing and will hear enough when it does
            send(Pong{});
        return {};
    }
    if (std::holds_alternative<Pong>(message))
        return {};
    const auto receiver = receiver_;  // it may set another one
    return receiver(std::move(message));
}

void ControlChannel::lose(const Error& why) {
    if (std::exchange(is_lost_, true))
        return;
    reactor_.unwatch(socket_.get());
    const auto lost = lost_;  // it may set another one
    lost(why);
}

}  // namespace mercury::transport
