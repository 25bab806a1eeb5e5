// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/units.hpp"
#include "layers/profile.hpp"

namespace mercury::replay {

/// Below this no order of transmission can bring an iteration: max(compute, wire), wire = the
/// bytes of the busiest NIC / TCP goodput, the same in each direction, and pushes and pulls flow
/// at the same time.
struct Bound {
    std::chrono::nanoseconds compute{0};
    std::chrono::nanoseconds wire{0};

    std::chrono::nanoseconds total() const { return std::max(compute, wire); }
};

/// Which host each worker and each server of a job runs on. One host may be both.
struct Placement {
    std::vector<std::size_t> workers;
    std::vector<std::size_t> servers;
};

constexpr unsigned mtu_default = 1500;

/// TCP payload bits a second on a link of RATE as tbf and sch_mercury count it: what an MTU holds
/// without the headers of IP and TCP (with time stamps), in a frame that is 14 bytes longer.
double tcp_goodput(Rate rate, unsigned mtu = mtu_default);

/// How long BYTES of payload take at that goodput.
std::chrono::nanoseconds wire_time(double bytes, Rate rate, unsigned mtu = mtu_default);

/// Bytes that HOST's NIC sends in one iteration of a parameter server whose servers have equal
/// parts of a model of BYTES; it receives as many. A NIC carries
///   for a worker:  BYTES x (servers elsewhere) / servers, its pushes, and as much that it pulls
///   for a server:  BYTES / servers x (workers elsewhere), its replies, and as many pushes
/// so with N hosts that are both 2 x BYTES x (N - 1) / N, and with W workers and S servers on
/// hosts of their own BYTES at a worker and BYTES x W / S at a server.
double nic_bytes(std::uint64_t bytes, const Placement& placement, std::size_t host);

/// Of the busiest NIC.
double busiest_nic_bytes(std::uint64_t bytes, const Placement& placement);

Bound bound_of(const Profile& profile, const Placement& placement, Rate rate,
               unsigned mtu = mtu_default);

/// One worker and one server.
Bound bound_of(const Profile& profile, Rate rate);

/// From START on, a NIC has only this part of its rate, for this long.
struct Dip {
    std::chrono::nanoseconds start{0};
    std::chrono::nanoseconds length{0};
    double factor = 1;
};

/// What one NIC carries in an iteration.
struct NicLoad {
    std::chrono::nanoseconds wire{0};  // at its full rate
    std::vector<Dip> dips;             // in order, not overlapping
};

/// The time of ITERATIONS, one after the other, that start at time 0.
std::chrono::nanoseconds bound_of_run(std::chrono::nanoseconds compute,
                                      const std::vector<NicLoad>& nics, std::size_t iterations);

}  // namespace mercury::replay
