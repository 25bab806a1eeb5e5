// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/result.hpp"
#include "layers/profile.hpp"

namespace mercury {

constexpr std::size_t classes_default = 6;

/// A run of layers that share one connection and one band. Class 0 is needed first.
struct PriorityClass {
    std::size_t first = 0;  // layer
    std::size_t last = 0;   // layer, included
    std::uint64_t bytes = 0;
};

/// Groups the layers into at most MAX_CLASSES classes in the order in which the forward pass
/// needs them.
///
/// With K classes the cuts are at the first K - 1 of 1/2, 1/4, 3/4, 1/8, 7/8, 1/16, 15/16, ... of
/// the cumulative bytes from the input: finer where the forward pass begins, which waits for its
/// first class to be complete, and where it ends, since nothing hides its last class if the network
/// is what an iteration waits for. A layer goes where its middle byte lies, so that a large layer
/// just behind many small ones does not join them. Classes that get no layer are left out.
///
/// No more layers than classes need not share any: then each is a class of its own.
Result<std::vector<PriorityClass>> group_layers(const Profile& profile, std::size_t max_classes);

/// The mark of class INDEX (0 to 1023) of JOB (0 to 255): band INDEX, that is layer INDEX + 1, of
/// that job of sch_mercury with its default masks.
std::uint32_t mark_of_class(unsigned job, std::size_t index);
unsigned job_of_mark(std::uint32_t mark);

}  // namespace mercury
