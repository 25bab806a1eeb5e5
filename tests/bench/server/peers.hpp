// SPDX-License-Identifier: MIT
//
// The other ends of the measured thread's connections, which cost as little as possible: what is
// sent comes from a buffer that stays in the cache, and what comes back is not copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "common/fd.hpp"
#include "transport/address.hpp"

namespace mercury::bench {

/// Connected, and blocking. At most RECEIVE_WINDOW bytes are underway to it; 0: TCP decides.
Fd connect_blocking(const transport::Address& address, std::size_t receive_window = 0);

void send_bytes(const Fd& socket, std::uint64_t bytes);
/// Throws them away.
void discard_bytes(const Fd& socket, std::uint64_t bytes);

}  // namespace mercury::bench
