// SPDX-License-Identifier: MIT
#include "peers.hpp"

#include <algorithm>
#include <vector>

#include <sys/socket.h>

#include "measure.hpp"

namespace mercury::bench {
namespace {

constexpr std::size_t piece = std::size_t{128} << 10;

}  // namespace

Fd connect_blocking(const transport::Address& address, std::size_t receive_window) {
    Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    // connect_to() bounds no window within one host, where otherwise some 32 MB fit into each.
    const auto window = static_cast<int>(receive_window);
    if (window != 0 &&
        setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &window, sizeof(window)) != 0)
        die(system_error("SO_RCVBUF").message);
    if (connect(socket.get(), address.get(), address.size()) != 0)
        die(system_error("cannot connect").message);
    return socket;
}

void send_bytes(const Fd& socket, std::uint64_t bytes) {
    static const auto data = touched(piece);
    while (bytes > 0) {
        const ssize_t sent = send(socket.get(), data.data(),
                                  std::min<std::uint64_t>(bytes, data.size()), MSG_NOSIGNAL);
        if (sent < 0)
            die(system_error("cannot send").message);
        bytes -= static_cast<std::uint64_t>(sent);
    }
}

void discard_bytes(const Fd& socket, std::uint64_t bytes) {
    while (bytes > 0) {
        // The kernel copies nothing.
        const ssize_t received =
            recv(socket.get(), nullptr, std::min<std::uint64_t>(bytes, 8 * piece), MSG_TRUNC);
        if (received <= 0)
            die(system_error("cannot receive").message);
        bytes -= static_cast<std::uint64_t>(received);
    }
}

}  // namespace mercury::bench
