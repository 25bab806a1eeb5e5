// SPDX-License-Identifier: MIT
//
// What Prometheus is told, docs/metrics.md: all that `tc -s` shows of mercury qdiscs, and what
// mercuryd itself knows. No I/O.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include <prometheus/metric_family.h>

#include "daemon/network.hpp"
#include "daemon/server.hpp"
#include "hints/protocol.hpp"
#include "netlink/snapshot.hpp"

namespace mercury::daemon {

/// Bands and jobs that one answer has room for, about 40 numbers each.
constexpr std::size_t classes_in_metrics = 2048;

/// Of the daemon, at one moment.
struct Report {
    hints::Status status;  // of all jobs
    Counters hints;
    Network::Counters kernel;
};

/// Both are missing if they could not be had, which is a metric of its own. Nothing that a client
/// chose is in a label unless JOB_NAMES are wanted: each name ever used costs Prometheus memory.
std::vector<prometheus::MetricFamily> metric_families(
    const std::optional<netlink::Snapshot>& snapshot, const std::optional<Report>& report,
    bool job_names);

}  // namespace mercury::daemon
