// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/units.hpp"
#include "replay/profile.hpp"

namespace mercury::replay {

/// Below this no order of transmission can bring an iteration:
/// max(compute, wire), wire = parameter bytes / TCP goodput, the same in each direction, and
/// pushes and pulls flow at the same time.
struct Bound {
    std::chrono::nanoseconds compute{0};
    std::chrono::nanoseconds wire{0};

    std::chrono::nanoseconds total() const { return std::max(compute, wire); }
};

/// TCP payload bits a second on a link of RATE as tbf and sch_mercury count it: 1448 payload bytes
/// (MTU 1500, time stamps) in each frame of 1514.
double tcp_goodput(Rate rate);

Bound bound_of(const Profile& profile, Rate rate);

}  // namespace mercury::replay
