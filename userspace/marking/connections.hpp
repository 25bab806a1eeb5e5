// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include <sys/types.h>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "marking/endpoints.hpp"

namespace mercury {

/// Of another process.
struct Connection {
    Fd socket;       // ours, of the same socket
    int number = 0;  // its descriptor
    std::uint64_t inode = 0;
    Endpoint local;
    Endpoint remote;
};

/// The TCP and UDP sockets of process PID that have a peer, in the order in which they were made.
/// Needs CAP_SYS_PTRACE, unless the process is one's own and lets itself be traced.
Result<std::vector<Connection>> connections_of(pid_t pid);

}  // namespace mercury
