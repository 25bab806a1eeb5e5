// SPDX-License-Identifier: MIT
#include "replay/sockets.hpp"

#include <array>
#include <string>
#include <utility>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

Result<void> set_option(const Fd& socket, int level, int option, int value, const char* name) {
    if (setsockopt(socket.get(), level, option, &value, sizeof(value)) != 0)
        return system_error(name);
    return {};
}

/// Before the first byte: marking a live socket would reorder it.
Result<void> set_mark(const Fd& socket, std::uint32_t mark) {
    if (mark == 0)
        return {};
    return set_option(socket, SOL_SOCKET, SO_MARK, static_cast<int>(mark),
                      "SO_MARK (needs CAP_NET_ADMIN)");
}

Result<void> set_stream_options(const Fd& socket) {
    if (auto set = set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"); !set)
        return set;
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
    // An accepted socket inherits the mark, so that even the SYN-ACK has it.
    if (auto set = set_mark(listener, endpoint.mark); !set)
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
    if (auto set = set_mark(connected, endpoint.mark); !set)
        return set.error();
    if (auto set = set_stream_options(connected); !set)
        return set.error();
    if (connect(connected.get(), generic(&endpoint.address), sizeof(endpoint.address)) != 0)
        return system_error(fmt::format("cannot connect to {}", to_string(endpoint.address)));
    return connected;
}

Result<Fd> accept_from(const Fd& listener) {
    Fd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted)
        return system_error("accept");
    if (auto set = set_stream_options(accepted); !set)
        return set.error();
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
