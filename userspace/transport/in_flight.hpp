// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace mercury::transport {

/// To what the bytes underway towards one host are to be bounded, so that the switch does not
/// overflow when all peers answer at once, and the link is busy all the same: the bandwidth-delay
/// product, which is on the wires (RTT without queues), and a sixth of the switch's buffer. Other
/// ports need the rest, and so do the classes: a switch with priority queues has room for a third of
/// its buffer in one of them, and up to three classes meet in the last one, with their windows used
/// up while more urgent ones are served. Servers and workers on one host share it.
constexpr std::size_t in_flight_for(std::size_t switch_buffer, std::uint64_t bits_per_second,
                                    std::chrono::nanoseconds rtt) {
    const double product =
        static_cast<double>(bits_per_second) / 8 * static_cast<double>(rtt.count()) * 1e-9;
    const double sum = product + static_cast<double>(switch_buffer) / 6;
    // Not 0, which would mean no bound.
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
    return sum < 1 ? 1 : sum < static_cast<double>(most) ? static_cast<std::size_t>(sum) : most;
}

/// Of a connection towards a host that shares IN_FLIGHT out among PEERS, not among their classes,
/// which take turns: 16 KiB at least. 0: no bound.
constexpr std::size_t window_for(std::size_t in_flight, std::size_t peers) {
    return in_flight == 0 ? 0 : std::max(in_flight / peers, std::size_t{16} << 10);
}

/// For one who knows nothing of the network.
constexpr std::size_t in_flight_default = std::size_t{384} << 10;

}  // namespace mercury::transport
