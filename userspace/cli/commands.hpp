// SPDX-License-Identifier: MIT
//
// What mercuryctl does. Each command prints its result to stdout and returns the exit status.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "cli/output.hpp"
#include "netlink/kernel.hpp"

namespace mercury::cli {

Outcome status(netlink::Kernel& kernel, const Output& output);
Outcome stats(netlink::Kernel& kernel, const Output& output);
Outcome jobs(netlink::Kernel& kernel, const Output& output);
/// JSON lines of what was counted in each interval.
Outcome trace(netlink::Kernel& kernel, const Output& output);
Outcome doctor(netlink::Kernel& kernel, const Output& output);

/// What apply would do.
Outcome diff(netlink::Kernel& kernel, const std::string& file, const Output& output);
/// What can be done is done, also if something else cannot.
Outcome apply(netlink::Kernel& kernel, const std::string& file, const Output& output);

struct PlanArguments {
    std::string model;  // a built-in one, or a file
    std::size_t classes = 0;
    unsigned job = 0;
    std::optional<std::chrono::nanoseconds> iteration;  // how long one takes here
};

Outcome plan(const PlanArguments& arguments, const Output& output);

}  // namespace mercury::cli
