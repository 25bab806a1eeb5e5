// SPDX-License-Identifier: MIT
//
// TCP sockets as the transport wants them: late-bound, marked before their first byte, and with a
// bounded window.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "transport/address.hpp"

namespace mercury::transport {

/// Late binding: a socket holds at most this much that TCP has not sent, so that a tensor waits
/// in the program, where its turn is still open, and in the qdisc, which knows its class.
constexpr int not_sent_lowat = 128 * 1024;

class JobHints;

struct SocketOptions {
    std::uint32_t mark = 0;     // SO_MARK; 0: none. Needs CAP_NET_ADMIN (or NET_RAW)
    JobHints* hints = nullptr;  // or what has it marked, as LAYER
    std::size_t layer = 0;
    std::optional<unsigned> dscp;    // 0 to 63, for switches
    std::size_t receive_window = 0;  // bytes that the peer may have underway; 0: TCP decides
};

/// All but the window, on a socket that has sent nothing yet: a later change would reorder what is
/// underway.
Result<void> set_options(const Fd& socket, const SocketOptions& options);

/// Bounds what the peer may have underway to BYTES, once connected; 0 is no bound. Nothing is
/// bounded within one host, where no switch can overflow and segments are as long as windows.
Result<void> bound_window(const Fd& socket, std::size_t bytes);

/// Listens, not blocking, with room for BACKLOG connections.
Result<Fd> listen_at(const Address& address, int backlog);

/// Connects with OPTIONS, waiting until DEADLINE; what is refused or not to be reached is
/// tried again, since the server may not be up yet. The socket does not block.
Result<Fd> connect_to(const Address& address, const SocketOptions& options,
                      std::chrono::steady_clock::time_point deadline);

/// For a send or receive that has just failed: the end of a process shows as one of several errors.
Error connection_error();

/// All of DATA, or until DEADLINE, on a socket that does not block.
Result<void> send_all(const Fd& socket, std::span<const std::byte> data,
                      std::chrono::steady_clock::time_point deadline);
Result<void> receive_all(const Fd& socket, std::span<std::byte> data,
                         std::chrono::steady_clock::time_point deadline);

}  // namespace mercury::transport
