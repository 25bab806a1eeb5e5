// SPDX-License-Identifier: MIT
//
// What the user gets to see of an experiment.
#pragma once

#include <string>

#include "common/result.hpp"
#include "layers/models.hpp"
#include "layers/profile.hpp"
#include "replay/experiment.hpp"

namespace mercury::replay {

/// Layers, classes and the bound, for `replay profile`.
std::string describe_profile(const Profile& profile, const std::vector<PriorityClass>& classes,
                             Rate rate);

/// The built-in models and what they need at a link of RATE, as a table for `replay models` and, as
/// it is, for Markdown.
Result<std::string> describe_models(const ComputeRate& compute, Rate rate);

/// The table of iteration times and what it says.
std::string describe_experiment(const Experiment& experiment);

/// Figures and settings, as JSON.
std::string experiment_json(const Experiment& experiment);

/// Who computed and what was on the wire when, in one typical iteration of each arm, as JSON:
///   layers, classes: as in experiment_json()
///   bin_ms: width of a sample on the wire
///   arms.NAME.backward, .forward: [layer, start_ms, end_ms], from the start of the iteration
///   arms.NAME.push, .pull: [bin, layer, bytes], on the wire to the server, to the worker
std::string timeline_json(const Experiment& experiment);

}  // namespace mercury::replay
