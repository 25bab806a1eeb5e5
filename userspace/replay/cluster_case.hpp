// SPDX-License-Identifier: MIT
//
// What one case of a cluster experiment consists of.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.hpp"
#include "layers/models.hpp"
#include "layers/profile.hpp"
#include "replay/bound.hpp"
#include "replay/network.hpp"
#include "replay/strategies.hpp"

namespace mercury::replay {

struct CaseJob {
    std::string name;
    unsigned number = 0;  // in its marks
    std::string model;    // as the file names it
    Profile profile;      // with all scales applied
    std::string placement;
    Placement hosts;
    std::string strategy;  // as the file names it
    StrategySpec spec;
};

/// Unmarked bulk flows that run during the whole training.
struct BulkFlows {
    std::string name;
    std::vector<std::pair<std::size_t, std::size_t>> pairs;  // from, to
    std::size_t connections = 1;                             // for each pair
};

/// One host's link has FACTOR times its rate, from AT after the warm-up.
struct RateChange {
    std::string name;
    std::size_t host = 0;
    std::chrono::nanoseconds at{0};
    std::chrono::nanoseconds length{0};
    double factor = 1;
};

struct RunSettings {
    std::size_t warm_up = 1;     // iterations of each job that are not measured
    std::size_t iterations = 3;  // that are
    std::size_t repeats = 3;     // each with a fresh network
};

struct ClusterCase {
    std::vector<std::pair<std::string, std::string>> labels;  // dimension, value
    std::string variant;                                      // of a sweep inside a label
    NetworkSettings network;
    std::vector<CaseJob> jobs;
    std::vector<BulkFlows> background;
    std::vector<RateChange> rate_changes;
    RunSettings run;

    std::string name() const;
};

/// Alone on the network at its full rate.
Bound bound_of(const CaseJob& job, const NetworkSettings& network);

/// The mean iteration of a job alone, with the rate changes of the case.
std::chrono::nanoseconds bound_with_changes(const ClusterCase& one, const CaseJob& job);

/// Payload bytes that all repeats move, at least: what decides how long they really take in
/// virtual time.
double bytes_moved(const ClusterCase& one);

/// Everything that decides the result.
nlohmann::ordered_json settings_json(const ClusterCase& one);

using StrategyFactory = std::function<Result<std::unique_ptr<Strategy>>(const StrategySpec& spec)>;

}  // namespace mercury::replay
