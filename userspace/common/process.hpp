// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"

namespace mercury {

/// Runs a program found in PATH to its end, in the network namespace of the calling thread, and
/// returns what it printed. It reads INPUT. The error of a failed one quotes the command and its
/// own message.
Result<std::string> run_command(const std::vector<std::string>& argv, std::string_view input = {});

}  // namespace mercury
