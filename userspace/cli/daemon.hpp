// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "cli/json.hpp"
#include "common/result.hpp"
#include "hints/protocol.hpp"

namespace mercury::cli {

/// $MERCURY_SOCKET, or where mercuryd listens by default.
std::string daemon_socket();

/// What the mercuryd that listens at PATH knows; nothing, if none listens there. Waits two seconds
/// for each answer at most.
Result<std::optional<hints::Status>> ask_daemon(const std::string& path);

/// Null if there is no daemon. Jobs are those that the asking user may see.
Json daemon_json(const std::optional<hints::Status>& daemon);
std::string daemon_text(const std::optional<hints::Status>& daemon);

/// The one with this number in the marks, or nullptr.
const hints::Status::Job* find_job(const std::optional<hints::Status>& daemon, unsigned number);

/// "alice", or "1000" if nobody has that number.
std::string user_name(std::uint32_t user);

}  // namespace mercury::cli
