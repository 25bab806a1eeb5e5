// SPDX-License-Identifier: MIT
#include "replay/sockets.hpp"

#include <array>
#include <string>
#include <utility>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "transport/sockets.hpp"

namespace mercury::replay {
namespace {

Result<void> set_option(const Fd& socket, int level, int option, int value, const char* name) {
    if (setsockopt(socket.get(), level, option, &value, sizeof(value)) != 0)
        return system_error(name);
    return {};
}

/// Before the first byte: marking a live socket would reorder it.
Result<void> set_endpoint_options(const Fd& socket, const Endpoint& endpoint) {
    if (endpoint.mark != 0) {
        if (auto set = set_option(socket, SOL_SOCKET, SO_MARK, static_cast<int>(endpoint.mark),
                                  "SO_MARK (needs CAP_NET_ADMIN)");
            !set)
            return set;
    }
    if (endpoint.hints != nullptr) {
        const auto outcome = endpoint.hints->assign(socket.get(), endpoint.layer, 0);
        if (outcome != hints::Outcome::Done) {
            return Error{fmt::format(
                "mercuryd does not mark a connection: {}",
                outcome < hints::Outcome::Done ? endpoint.hints->error() : endpoint.hints->why())};
        }
    }
    if (endpoint.dscp != 0) {
        if (auto set = set_option(socket, IPPROTO_IP, IP_TOS, static_cast<int>(endpoint.dscp << 2),
                                  "IP_TOS");
            !set)
            return set;
    }
    return {};
}

Result<void> set_stream_options(const Fd& socket, const Endpoint& endpoint) {
    // Or else the end of a message would wait for an acknowledgement that its receiver delays.
    if (auto set = set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"); !set)
        return set;
    if (!endpoint.late_binding)
        return {};
    return set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, not_sent_lowat, "TCP_NOTSENT_LOWAT");
}

// The socket API's generic address.
const sockaddr* generic(const sockaddr_in* address) {
    return reinterpret_cast<const sockaddr*>(address);
}
sockaddr* generic(sockaddr_in* address) {
    return reinterpret_cast<sockaddr*>(address);
}

std::string to_string(const sockaddr_in& address) {
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(address.sin_port));
}

}  // namespace

Result<Fd> listen_at(const Endpoint& endpoint) {
    Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!listener)
        return system_error("socket");
    // The port may have served an earlier training.
    if (auto set = set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"); !set)
        return set.error();
    // An accepted socket inherits them, so that even the SYN-ACK has the mark.
    if (auto set = set_endpoint_options(listener, endpoint); !set)
        return set.error();
    if (bind(listener.get(), generic(&endpoint.address), sizeof(endpoint.address)) != 0 ||
        listen(listener.get(), 1) != 0)
        return system_error(fmt::format("cannot listen at {}", to_string(endpoint.address)));
    return listener;
}

Result<Fd> connect_to(const Endpoint& endpoint) {
    Fd connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!connected)
        return system_error("socket");
    if (auto set = set_endpoint_options(connected, endpoint); !set)
        return set.error();
    if (auto set = set_stream_options(connected, endpoint); !set)
        return set.error();
    if (connect(connected.get(), generic(&endpoint.address), sizeof(endpoint.address)) != 0)
        return system_error(fmt::format("cannot connect to {}", to_string(endpoint.address)));
    if (auto bounded = transport::bound_window(connected, endpoint.window); !bounded)
        return bounded.error();
    return connected;
}

Result<Fd> accept_from(const Fd& listener, const Endpoint& endpoint) {
    Fd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted)
        return system_error("accept");
    if (auto set = set_stream_options(accepted, endpoint); !set)
        return set.error();
    if (auto bounded = transport::bound_window(accepted, endpoint.window); !bounded)
        return bounded.error();
    return accepted;
}

Result<in_port_t> port_of(const Fd& socket) {
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    if (getsockname(socket.get(), generic(&address), &length) != 0)
        return system_error("getsockname");
    return ntohs(address.sin_port);
}

}  // namespace mercury::replay
