// SPDX-License-Identifier: MIT
#include "hints/sockets.hpp"

#include <algorithm>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/fd.hpp"

namespace mercury::hints {
namespace {

template <typename T>
bool get(int fd, int option, T& value) {
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0;
}

/// SIOCOUTQ: bytes that are not acknowledged yet (TCP) or not sent yet (UDP).
bool is_idle(int fd) {
    int underway = 0;
    // A listening socket has no such number, and nothing underway.
    return ioctl(fd, SIOCOUTQ, &underway) != 0 || underway == 0;
}

}  // namespace

Result<SocketFacts> inspect_socket(int fd) {
    int type = 0;
    int protocol = 0;
    SocketFacts facts;
    // The first question is also whether it is a socket at all, and asks nobody else: an fstat() of
    // a file in user space could wait for its owner.
    if (!get(fd, SO_DOMAIN, facts.family))
        return system_error("the descriptor is not a socket");
    if (!get(fd, SO_TYPE, type) || !get(fd, SO_PROTOCOL, protocol))
        return system_error("getsockopt");
    const bool stream = type == SOCK_STREAM && protocol == IPPROTO_TCP;
    const bool datagram = type == SOCK_DGRAM && protocol == IPPROTO_UDP;
    if ((facts.family != AF_INET && facts.family != AF_INET6) || (!stream && !datagram))
        return Error{"the descriptor is neither a TCP nor a UDP socket"};
    facts.tcp = stream;
    facts.idle = is_idle(fd);
    if (!get(fd, SO_COOKIE, facts.cookie) || !get(fd, SO_MARK, facts.mark) ||
        !get(fd, SO_PRIORITY, facts.priority))
        return system_error("getsockopt");
    return facts;
}

Result<void> set_lowat(int fd, const SocketFacts& facts, std::uint32_t bytes) {
    if (!facts.tcp)
        return Error{"TCP_NOTSENT_LOWAT is for TCP sockets only"};
    const int value = static_cast<int>(bytes);
    if (setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, sizeof(value)) != 0)
        return system_error("TCP_NOTSENT_LOWAT");
    return {};
}

Result<void> set_priority(int fd, int priority) {
    if (setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority)) != 0)
        return system_error("SO_PRIORITY");
    return {};
}

int priority_of_class(std::size_t index, std::size_t classes) {
    const std::size_t before =
        classes > priorities ? index * priorities / classes : std::min(index, priorities - 1);
    return static_cast<int>(1 + before);
}

}  // namespace mercury::hints
