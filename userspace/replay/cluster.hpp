// SPDX-License-Identifier: MIT
//
// Runs the cases of a cluster experiment, one after the other.
#pragma once

#include <string>
#include <vector>

#include "common/result.hpp"
#include "replay/cluster_case.hpp"
#include "replay/experiment_file.hpp"

namespace mercury::replay {

struct ClusterOptions {
    std::string json;                 // where the results go
    std::vector<std::string> select;  // a case's name must contain one of them; all if empty
    bool resume = false;              // leave out what the results already have
    bool terminal = false;            // progress on a line that is written over and over
};

/// The numbers of the cases whose names contain one of the texts.
Result<std::vector<std::size_t>> select_cases(const ClusterExperiment& experiment,
                                              const std::vector<std::string>& texts);

/// A line for each of these cases, with the time it takes, and the sum of these.
std::string list_cases(const ClusterExperiment& experiment, const std::vector<std::size_t>& cases);

/// Runs the selected cases. After each of them the results are written anew; what was there before
/// is kept if cases are selected or left out, as far as it is of the same cases and settings. Each
/// repeat runs in a process of its own; a case that fails is one of the results. INTERRUPT_FD is a
/// signalfd.
///
/// The exit status: 0, 1 if a case failed, 128 + the signal if there was one.
Result<int> run_cluster(const ClusterExperiment& experiment, const ClusterOptions& options,
                        const StrategyFactory& make_strategy, int interrupt_fd);

}  // namespace mercury::replay
