// SPDX-License-Identifier: MIT
//
// The results of a cluster experiment, as JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.hpp"
#include "replay/cluster_case.hpp"
#include "replay/experiment_file.hpp"

namespace mercury::replay {

/// What all repeats of a case came to. RUNS are the outcomes of CaseRun::run(); the first may have
/// a timeline.
nlohmann::ordered_json case_result(const ClusterCase& one,
                                   const std::vector<nlohmann::ordered_json>& runs,
                                   double real_seconds);

/// Of a case that failed.
nlohmann::ordered_json case_failure(const ClusterCase& one, const std::string& error);

/// Everything known so far; CASES are null where there is nothing yet.
nlohmann::ordered_json experiment_result(const ClusterExperiment& experiment,
                                         const std::vector<nlohmann::ordered_json>& cases,
                                         bool virtual_time);

/// The results of an earlier run, in the order of EXPERIMENT's cases: those with the same name and
/// the same settings that did not fail, null for the others. A file that does not exist has none.
Result<std::vector<nlohmann::ordered_json>> earlier_results(const ClusterExperiment& experiment,
                                                            const std::string& path);

/// Readers of PATH see the old content or all of the new.
Result<void> write_atomically(const std::string& path, const std::string& content);

/// "812.3 ms (805.1 to 815.0), 1.05 of the bound", for each job.
std::string describe_case(const nlohmann::ordered_json& result);

}  // namespace mercury::replay
