// SPDX-License-Identifier: MIT
#include "replay/strategy_plan.hpp"

#include <algorithm>

namespace mercury::replay {
namespace {

/// FRACTION / OF of BYTES, without overflow.
std::uint64_t part_of(std::uint64_t bytes, std::size_t fraction, std::size_t of) {
    return bytes / of * fraction + bytes % of * fraction / of;
}

}  // namespace

Plan Plan::shards(const Profile& profile, std::size_t servers) {
    Plan plan;
    for (std::uint32_t layer = 0; layer < profile.layers.size(); ++layer) {
        const std::uint64_t bytes = profile.layers[layer].bytes;
        const auto first = static_cast<std::uint32_t>(plan.chunks_.size());
        for (std::uint32_t server = 0; server < servers; ++server) {
            const std::uint64_t share =
                part_of(bytes, server + 1, servers) - part_of(bytes, server, servers);
            if (share > 0)
                plan.chunks_.push_back({layer, server, share});
        }
        plan.layers_.push_back({first, static_cast<std::uint32_t>(plan.chunks_.size())});
    }
    return plan;
}

Plan Plan::slices(const Profile& profile, std::size_t servers, std::uint64_t slice) {
    Plan plan;
    std::uint32_t turn = 0;
    for (std::uint32_t layer = 0; layer < profile.layers.size(); ++layer) {
        const auto first = static_cast<std::uint32_t>(plan.chunks_.size());
        for (std::uint64_t left = profile.layers[layer].bytes; left > 0;) {
            const std::uint64_t bytes = std::min(left, slice);
            plan.chunks_.push_back({layer, turn, bytes});
            turn = static_cast<std::uint32_t>((turn + 1) % servers);
            left -= bytes;
        }
        plan.layers_.push_back({first, static_cast<std::uint32_t>(plan.chunks_.size())});
    }
    return plan;
}

}  // namespace mercury::replay
