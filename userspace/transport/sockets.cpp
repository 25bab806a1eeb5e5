// SPDX-License-Identifier: MIT
#include "transport/sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "transport/job_hints.hpp"

namespace mercury::transport {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

constexpr std::chrono::milliseconds retry_interval{50};

/// Segments in a window at least. A sender waits for room for a whole one, if need be until its
/// timer of 200 ms expires, and the kernel may use half of a window for its overhead.
constexpr std::size_t segments_min = 4;

Result<void> set_option(const Fd& socket, int level, int option, int value, const char* name) {
    if (setsockopt(socket.get(), level, option, &value, sizeof(value)) != 0)
        return system_error(name);
    return {};
}

Result<void> set_dscp(const Fd& socket, unsigned dscp) {
    const auto address = Address::of_socket(socket);
    if (!address)
        return address.error();
    const int traffic_class = static_cast<int>(dscp << 2);
    if (address.value().family() == AF_INET6)
        return set_option(socket, IPPROTO_IPV6, IPV6_TCLASS, traffic_class, "IPV6_TCLASS");
    return set_option(socket, IPPROTO_IP, IP_TOS, traffic_class, "IP_TOS");
}

/// Until SOCKET is ready for EVENTS.
Result<void> wait_for(const Fd& socket, short events, TimePoint deadline) {
    for (;;) {
        // Rounded up, or the last fraction of a millisecond would be polled busily.
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0)
            return Error{"timed out"};
        pollfd entry{socket.get(), events, 0};
        const int ready =
            poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1'000'000)));
        if (ready > 0)
            return {};
        if (ready < 0 && errno != EINTR)
            return system_error("poll");
    }
}

/// 0 or the errno.
int connect_once(const Fd& socket, const Address& address, TimePoint deadline) {
    if (connect(socket.get(), address.get(), address.size()) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    if (!wait_for(socket, POLLOUT, deadline))
        return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

/// Until somebody brings up a server, its machine or the way there.
bool may_come_up(int error) {
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
           error == ETIMEDOUT;
}

}  // namespace

Result<void> set_options(const Fd& socket, const SocketOptions& options) {
    if (auto set = set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"); !set)
        return set;
    if (auto set =
            set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, not_sent_lowat, "TCP_NOTSENT_LOWAT");
        !set)
        return set;
    // Before the priority that the mark or a user may set: IP_TOS overwrites it.
    if (options.dscp) {
        if (auto set = set_dscp(socket, *options.dscp); !set)
            return set;
    }
    if (options.hints != nullptr)
        options.hints->assign(socket, options.layer);
    if (options.mark == 0)
        return {};
    return set_option(socket, SOL_SOCKET, SO_MARK, static_cast<int>(options.mark),
                      "SO_MARK (needs CAP_NET_ADMIN, or marks switched off)");
}

Result<void> bound_window(const Fd& socket, std::size_t bytes) {
    const auto own = Address::of_socket(socket);
    if (!own)
        return own.error();
    const auto peer = Address::of_peer(socket);
    if (!peer)
        return peer.error();
    if (bytes == 0 || own.value().has_host_of(peer.value()))
        return {};
    int segment = 0;
    socklen_t length = sizeof(segment);
    if (getsockopt(socket.get(), IPPROTO_TCP, TCP_MAXSEG, &segment, &length) != 0)
        return system_error("TCP_MAXSEG");
    const std::size_t least = segments_min * static_cast<std::size_t>(segment);
    const auto window = static_cast<int>(std::clamp<std::size_t>(bytes, least, 1 << 30));
    // The kernel doubles this, for its overhead, but offers what the overhead leaves: without the
    // second option up to 1.8 times as much.
    if (auto set = set_option(socket, SOL_SOCKET, SO_RCVBUF, window, "SO_RCVBUF"); !set)
        return set;
    return set_option(socket, IPPROTO_TCP, TCP_WINDOW_CLAMP, window, "TCP_WINDOW_CLAMP");
}

Result<Fd> listen_at(const Address& address, int backlog) {
    Fd listener(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener)
        return system_error("socket");
    // Connections of an earlier run may still linger at the port.
    if (auto set = set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"); !set)
        return set.error();
    if (bind(listener.get(), address.get(), address.size()) != 0 ||
        listen(listener.get(), backlog) != 0)
        return system_error(fmt::format("cannot listen at {}", address.to_string()));
    return listener;
}

Result<Fd> connect_to(const Address& address, const SocketOptions& options, TimePoint deadline) {
    for (;;) {
        Fd connected(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!connected)
            return system_error("socket");
        if (auto set = set_options(connected, options); !set)
            return set.error();
        const int error = connect_once(connected, address, deadline);
        if (error == 0) {
            if (auto bounded = bound_window(connected, options.receive_window); !bounded)
                return bounded.error();
            return connected;
        }
        if (!may_come_up(error) || std::chrono::steady_clock::now() + retry_interval > deadline) {
            return Error{
                fmt::format("cannot connect to {}: {}", address.to_string(), std::strerror(error))};
        }
        std::this_thread::sleep_for(retry_interval);
    }
}

Error connection_error() {
    if (errno == ECONNRESET || errno == EPIPE)
        return Error{"closed the connection"};
    return system_error("lost the connection");
}

Result<void> send_all(const Fd& socket, std::span<const std::byte> data, TimePoint deadline) {
    while (!data.empty()) {
        const ssize_t sent = send(socket.get(), data.data(), data.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            data = data.subspan(static_cast<std::size_t>(sent));
        } else if (errno != EAGAIN) {
            return connection_error();
        } else if (auto ready = wait_for(socket, POLLOUT, deadline); !ready) {
            return ready;
        }
    }
    return {};
}

Result<void> receive_all(const Fd& socket, std::span<std::byte> data, TimePoint deadline) {
    while (!data.empty()) {
        const ssize_t received = recv(socket.get(), data.data(), data.size(), 0);
        if (received > 0) {
            data = data.subspan(static_cast<std::size_t>(received));
        } else if (received == 0) {
            return Error{"closed the connection"};
        } else if (errno != EAGAIN) {
            return connection_error();
        } else if (auto ready = wait_for(socket, POLLIN, deadline); !ready) {
            return ready;
        }
    }
    return {};
}

}  // namespace mercury::transport
