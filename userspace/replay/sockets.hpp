// SPDX-License-Identifier: MIT
//
// The TCP connections that all arms use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <netinet/in.h>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "hints/client.hpp"

namespace mercury::replay {

/// A port to connect to, and what both ends of the connections there have.
struct Endpoint {
    sockaddr_in address{};
    std::uint32_t mark = 0;          // 0 is no mark
    hints::Client* hints = nullptr;  // or mercuryd marks them, as LAYER
    std::size_t layer = 0;
    unsigned dscp = 0;
    std::size_t window = 0;    // bytes that may be underway to each end, 0: the kernel adapts it
    bool late_binding = true;  // or else as sockets are by default
};

/// Late binding: a socket holds at most this much that TCP has not sent, so that a layer waits in
/// the program, where its turn is still open, and in the qdisc, which knows its class.
constexpr int not_sent_lowat = 128 * 1024;

/// An address with port 0 is given a free port: ask port_of().
Result<Fd> listen_at(const Endpoint& endpoint);
Result<Fd> connect_to(const Endpoint& endpoint);
Result<Fd> accept_from(const Fd& listener, const Endpoint& endpoint = {});
Result<in_port_t> port_of(const Fd& socket);

/// One host's ends of the connections to the other, by class.
///
/// Each connection carries layers in one direction, as in ps-lite. With both directions in one,
/// acknowledgements ride on data that waits in the queue: a single connection was held to 5.6 of
/// 9.56 Gbit/s, and under a qdisc that lets pure ACKs pass waiting data, TCP threw away the data
/// for the old acknowledgement in it (RFC 5961, 5.2).
struct Ends {
    std::vector<Fd> push;  // gradients, to the server
    std::vector<Fd> pull;  // parameters, back from it
};

}  // namespace mercury::replay
