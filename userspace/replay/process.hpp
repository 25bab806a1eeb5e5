// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "common/result.hpp"

namespace mercury::replay {

/// Runs a program found in PATH to its end, in the network namespace of the calling thread, and
/// returns what it printed. The error of a failed one quotes the command and its own message.
Result<std::string> run_command(const std::vector<std::string>& argv);

}  // namespace mercury::replay
