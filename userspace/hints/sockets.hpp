// SPDX-License-Identifier: MIT
//
// What can be known of a socket, and what needs no privilege to be set: for the daemon, which gets
// sockets of others, and for the client library, which has its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/result.hpp"

namespace mercury::hints {

struct SocketFacts {
    std::uint64_t cookie = 0;  // the kernel's own number of it, never used again
    int family = 0;            // AF_INET or AF_INET6
    bool tcp = false;          // or UDP
    std::uint32_t mark = 0;
    int priority = 0;
    bool idle = false;  // nothing of it is underway, so that nothing can be reordered
};

/// An error if FD is not a TCP or UDP socket. It may be anything at all, and is not harmed.
Result<SocketFacts> inspect_socket(int fd);

/// TCP_NOTSENT_LOWAT; an error if it is not TCP.
Result<void> set_lowat(int fd, const SocketFacts& facts, std::uint32_t bytes);

Result<void> set_priority(int fd, int priority);

/// What needs no privilege is 0 to 6, and 0 is unmarked.
constexpr std::size_t priorities = 6;

/// SO_PRIORITY of class INDEX. If there are more CLASSES than priorities, neighbours share one.
int priority_of_class(std::size_t index, std::size_t classes = priorities);

}  // namespace mercury::hints
