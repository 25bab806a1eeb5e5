// SPDX-License-Identifier: MIT
#include "loops.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <thread>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "peers.hpp"
#include "transport/address.hpp"
#include "transport/sockets.hpp"

namespace mercury::bench {
namespace {

using transport::Address;

/// Before the clock starts: slow start, and pages that are touched for the first time.
constexpr std::uint64_t warm_up(std::uint64_t bytes) {
    return bytes / 8;
}

class Loop {
  public:
    explicit Loop(const LoopOptions& options)
        : options_(options),
          buffer_(touched(options.buffer)),
          epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

    void accept_all(const Fd& listener);
    Figures run();

  private:
    struct Connection {
        Fd socket;
        std::uint64_t owed = 0;  // bytes to be returned
        bool blocked = false;
    };

    void watch(Connection& connection, int operation, std::uint32_t events);
    void receive(Connection& connection);
    void send_back(Connection& connection);

    LoopOptions options_;
    std::vector<std::byte> buffer_;
    Fd epoll_;
    std::deque<Connection> connections_;
    std::uint64_t received_ = 0;
    std::uint64_t returned_ = 0;
};

void Loop::accept_all(const Fd& listener) {
    while (connections_.size() < options_.senders) {
        pollfd entry{listener.get(), POLLIN, 0};
        poll(&entry, 1, -1);
        Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket)
            die(system_error("accept").message);
        if (options_.returns)
            need(transport::set_options(socket, {}));
        watch(connections_.emplace_back(Connection{std::move(socket)}), EPOLL_CTL_ADD, EPOLLIN);
    }
}

void Loop::watch(Connection& connection, int operation, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &connection;
    if (epoll_ctl(epoll_.get(), operation, connection.socket.get(), &event) != 0)
        die(system_error("epoll_ctl").message);
}

Figures Loop::run() {
    std::optional<Stopwatch> watch;
    std::uint64_t before = 0;
    std::array<epoll_event, 64> due{};
    while (received_ < options_.bytes || (options_.returns && returned_ < options_.bytes)) {
        if (!watch && received_ >= warm_up(options_.bytes)) {
            before = received_;
            watch.emplace(pthread_self());
        }
        const int count = epoll_wait(epoll_.get(), due.data(), due.size(), -1);
        for (const auto& event :
             std::span(due).first(static_cast<std::size_t>(std::max(count, 0)))) {
            auto& connection = *static_cast<Connection*>(event.data.ptr);
            if ((event.events & EPOLLOUT) != 0)
                send_back(connection);
            else
                receive(connection);
        }
    }
    return watch->read(received_ - before);
}

void Loop::receive(Connection& connection) {
    const ssize_t size =
        recv(connection.socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (size == 0)
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
    if (size <= 0)
        return;
    received_ += static_cast<std::uint64_t>(size);
    if (options_.returns) {
        connection.owed += static_cast<std::uint64_t>(size);
        send_back(connection);
    }
}

/// Reads no more from a connection that takes nothing.
void Loop::send_back(Connection& connection) {
    bool blocked = false;
    while (connection.owed > 0 && !blocked) {
        const ssize_t size = send(connection.socket.get(), buffer_.data(),
                                  std::min<std::uint64_t>(connection.owed, buffer_.size()),
                                  MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0 && errno != EAGAIN)
            die(system_error("send").message);
        blocked = size < 0;
        connection.owed -= static_cast<std::uint64_t>(std::max<ssize_t>(size, 0));
        returned_ += static_cast<std::uint64_t>(std::max<ssize_t>(size, 0));
    }
    if (std::exchange(connection.blocked, blocked) != blocked)
        watch(connection, EPOLL_CTL_MOD, blocked ? EPOLLOUT : EPOLLIN);
}

void send_and_drain(const Address& address, std::uint64_t bytes, bool drains) {
    const Fd socket = connect_blocking(address);
    std::optional<std::thread> drain;
    if (drains)
        drain.emplace([&] { discard_bytes(socket, bytes); });
    send_bytes(socket, bytes);
    if (drain)
        drain->join();
}

}  // namespace

Figures copy_memory(std::uint64_t bytes, std::size_t buffer) {
    const auto from = touched(buffer);
    auto to = touched(buffer);
    const Stopwatch watch(pthread_self());
    std::uint64_t copied = 0;
    for (; copied < bytes; copied += buffer) {
        std::memcpy(to.data(), from.data(), buffer);
        asm volatile("" : : "r"(to.data()) : "memory");  // somebody may read it
    }
    return watch.read(copied);
}

Figures plain_loop(const LoopOptions& options) {
    LoopOptions own = options;
    own.bytes = options.bytes / options.senders * options.senders;
    const Fd listener =
        need(transport::listen_at(need(Address::parse("127.0.0.1:0")).front(), 128));
    const Address address = need(Address::of_socket(listener));
    Figures figures;
    std::thread receiver = measured_thread([&] {
        Loop loop(own);
        loop.accept_all(listener);
        figures = loop.run();
    });
    make_room_for_measured_thread();
    std::vector<std::thread> senders;
    for (std::size_t i = 0; i < own.senders; ++i) {
        senders.emplace_back(
            [&] { send_and_drain(address, own.bytes / own.senders, own.returns); });
    }
    for (std::thread& sender : senders)
        sender.join();
    receiver.join();
    return figures;
}

}  // namespace mercury::bench
