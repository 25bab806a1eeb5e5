// SPDX-License-Identifier: MIT
//
// What the server is compared with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "measure.hpp"

namespace mercury::bench {

struct LoopOptions {
    std::size_t senders = 1;
    std::uint64_t bytes = 0;  // of all senders together
    std::size_t buffer = 0;   // bytes, which the thread reuses
    bool returns = false;     // sends each what has come from it
};

/// memcpy() of BYTES between two buffers of BUFFER bytes.
Figures copy_memory(std::uint64_t bytes, std::size_t buffer);

/// One thread and epoll: no sums, no frames, nothing but recv(), and send().
Figures plain_loop(const LoopOptions& options);

}  // namespace mercury::bench
