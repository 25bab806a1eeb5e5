// SPDX-License-Identifier: MIT
//
// A cluster experiment as a TOML file.
//
//   title, description    texts
//   [network]             hosts, rate, delay, mtu, qdisc, switch = { buffer, queues }
//   [qdiscs]              NAME = the words for tc, or a list of lines: see NetworkSettings::qdisc
//   [job]                 model, tflops, batch, hosts, placement, strategy, scale (or bytes, of all
//                         layers together), compute_scale, wire_to_compute: of every job that has
//                         nothing else
//   [jobs.NAME]           the same, of one job; without any there is one
//   [background.NAME]     from, to, connections
//   [rate_changes.NAME]   host, at, for, factor
//   [run]                 warm_up, iterations, repeats
//   [report]              compare, baseline, x
//   [[matrix.DIMENSION]]  name, and any of the settings above: the cases are all combinations of
//                         one entry of each dimension
//
// Wherever one value is expected, a list of them is a dimension, too. Inside an entry of a matrix
// it is a sweep: its cases share the entry's name.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.hpp"
#include "replay/cluster_case.hpp"

namespace mercury::replay {

struct ClusterExperiment {
    std::string name;  // of the file, without its ending
    std::string path;
    std::string title;
    std::string description;
    std::string compare;   // dimension that is compared ("" if none)
    std::string baseline;  // its value that the others are compared with
    std::string x;         // dimension of a curve
    std::vector<std::pair<std::string, std::vector<std::string>>> dimensions;  // with all values
    std::vector<ClusterCase> cases;
};

/// The words of "NAME KEY=VALUE KEY=VALUE".
Result<StrategySpec> parse_strategy(std::string_view text);

/// "0-7,9": hosts below COUNT, none twice.
Result<std::vector<std::size_t>> parse_hosts(std::string_view text, std::size_t count);

struct ExperimentOptions {
    std::filesystem::path profiles;  // where names of profile files are looked up, too
    StrategyFactory make_strategy;   // to check them
};

/// All cases, checked as far as that goes without a network. An error names every problem with
/// file, line and key. SOURCE is the file's path.
Result<ClusterExperiment> parse_experiment(std::string_view text, std::string_view source,
                                           const ExperimentOptions& options);
Result<ClusterExperiment> load_experiment(const std::filesystem::path& path,
                                          const ExperimentOptions& options);

}  // namespace mercury::replay
