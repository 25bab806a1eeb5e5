// SPDX-License-Identifier: MIT
#include "replay/order_bound.hpp"

#include <algorithm>
#include <cstdint>

namespace mercury::replay {

using std::chrono::nanoseconds;

nanoseconds order_bound(const Profile& profile, nanoseconds wire) {
    const auto total = static_cast<double>(profile.bytes());
    auto behind = profile.compute();  // of layer i and all that follow
    std::uint64_t bytes = 0;          // of all layers up to i
    nanoseconds bound = std::max(behind, wire);
    for (const Layer& layer : profile.layers) {
        bytes += layer.bytes;
        const auto sent =
            static_cast<double>(bytes) / total * std::chrono::duration<double, std::nano>(wire);
        bound = std::max(bound, behind + std::chrono::round<nanoseconds>(sent));
        behind -= layer.forward + layer.backward;
    }
    return bound;
}

}  // namespace mercury::replay
