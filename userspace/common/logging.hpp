// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace mercury {

/// spdlog's default logger writes to standard error from now on: "NAME: level: message" for people,
/// or, if that is the journal, with the priorities of sd-daemon(3) instead of name and level.
void log_to_stderr(const std::string& name);

/// Text that somebody else chose, without control characters that a terminal or a log would obey.
std::string printable(std::string_view text);

}  // namespace mercury
