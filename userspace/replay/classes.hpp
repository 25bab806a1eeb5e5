// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/result.hpp"
#include "replay/profile.hpp"

namespace mercury::replay {

constexpr std::size_t classes_default = 4;

/// A run of layers that share one connection and one band. Class 0 is needed first.
struct PriorityClass {
    std::size_t first = 0;  // layer
    std::size_t last = 0;   // layer, included
    std::uint64_t bytes = 0;
};

/// Groups the layers into at most MAX_CLASSES classes in the order in which the forward pass
/// needs them.
///
/// With K classes the cuts are at total / 2^(K-1), ..., total / 4, total / 2 of the cumulative
/// bytes from the input. A layer goes where its middle byte lies, so that a large layer just
/// behind many small ones does not join them. Classes that get no layer are left out.
Result<std::vector<PriorityClass>> group_layers(const Profile& profile, std::size_t max_classes);

/// The mark of class INDEX: band INDEX of job 0, that is layer INDEX + 1 of sch_mercury.
std::uint32_t mark_of_class(std::size_t index);

}  // namespace mercury::replay
