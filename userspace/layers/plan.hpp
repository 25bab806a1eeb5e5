// SPDX-License-Identifier: MIT
//
// What a job's layers become in the network: the rule by which hints are turned into classes,
// marks and deadlines.
//
// Classes are those of group_layers(). Each is one band of the job, in the same order, and has the
// mark of it.
//
// The deadline of a layer is when the next forward pass reaches it, counted from when its gradient
// is handed over. The backward pass comes from the output, so that it still has the layers before
// this one to go, and then the forward pass has the same ones:
//
//     slack(i) = sum over j < i of (backward(j) + forward(j))
//
// It is 0 for the first layer, for which everything waits, and never falls from one layer to the
// next: the lowest band first is the earliest deadline first. The deadline of a class is the slack
// of its first layer, the smallest that it holds.
//
// A layer without times counts as one that takes none, so the slack is never overstated. If no
// layer has a time, nothing is known and classes have no deadline.
//
// The times may have been measured elsewhere. If the time from one iteration to the next is known
// as it is here, all are taken to be wrong by the same factor, which is that time through their
// sum. A job that waits for its network gets more slack in this way, which is what it has: the
// forward pass does not reach the layers behind the one that it waits for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/result.hpp"
#include "layers/classes.hpp"
#include "layers/profile.hpp"

namespace mercury {

struct PlannedClass {
    PriorityClass layers;
    std::uint32_t mark = 0;
    /// After a packet is enqueued, in the range that sch_mercury takes.
    std::optional<std::chrono::nanoseconds> deadline;
};

/// In at most MAX_CLASSES classes of JOB (0 to 255). INTERVAL is the time from one iteration to the
/// next as it was seen.
Result<std::vector<PlannedClass>> plan_layers(
    const Profile& profile, std::size_t max_classes, unsigned job,
    std::optional<std::chrono::nanoseconds> interval = std::nullopt);

/// The index of the class that LAYER, one of the planned, is in.
std::size_t class_of_layer(const std::vector<PlannedClass>& plan, std::size_t layer);

/// Of each layer, by its times; see above.
std::vector<std::chrono::nanoseconds> slack_of(const std::vector<Layer>& layers);

}  // namespace mercury
