// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cli/snapshot.hpp"
#include "cli/terminal.hpp"
#include "netlink/kernel.hpp"

namespace mercury::cli {

/// One mercury qdisc, now and in the last interval.
struct TopView {
    std::string device;
    QdiscState total;
    QdiscState delta;
    std::chrono::nanoseconds interval{0};  // between the two
    std::size_t number = 1;                // of this qdisc among those that can be shown
    std::size_t of = 1;
};

/// The screen. Bands that have nothing to say go first where there is no room.
std::vector<std::string> top_lines(const TopView& view, Size size);

/// Until q, or a signal. DEVICE is where to begin, "" the first one.
Result<void> top(netlink::Kernel& kernel, const std::string& device,
                 std::chrono::nanoseconds interval);

}  // namespace mercury::cli
