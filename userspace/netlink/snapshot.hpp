// SPDX-License-Identifier: MIT
//
// Devices, their mercury qdiscs and the classes of these, read in one go.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/reactor.hpp"
#include "common/result.hpp"
#include "netlink/kernel.hpp"
#include "netlink/types.hpp"

namespace mercury::netlink {

struct QdiscState {
    Qdisc qdisc;
    std::vector<Class> classes;  // jobs each before its bands, then the default class
};

struct DeviceState {
    Link link;
    std::vector<Qdisc> qdiscs;        // of all kinds
    std::vector<QdiscState> mercury;  // several below mq
};

struct Snapshot {
    Clock::time_point when;
    std::vector<DeviceState> devices;
};

/// Blocks until there is the answer. Of all devices, or of the one called DEVICE, which is an error
/// if there is none.
Result<Snapshot> read_snapshot(Kernel& kernel, const std::string& device = "");

/// What a band's deadline, the job's number and the like are read from; empty if it has none.
inline const ClassOptions& options_of(const Class& one) {
    static const ClassOptions none;
    return one.options ? *one.options : none;
}

}  // namespace mercury::netlink
