// SPDX-License-Identifier: MIT
#include "replay/bound.hpp"

namespace mercury::replay {

double tcp_goodput(Rate rate) {
    constexpr double payload = 1500 - 20 - 20 - 12;
    constexpr double frame = 1500 + 14;
    return static_cast<double>(rate.bits_per_second) * payload / frame;
}

Bound bound_of(const Profile& profile, Rate rate) {
    const std::chrono::duration<double> wire(static_cast<double>(profile.bytes()) * 8 /
                                             tcp_goodput(rate));
    return {profile.compute(), std::chrono::round<std::chrono::nanoseconds>(wire)};
}

}  // namespace mercury::replay
