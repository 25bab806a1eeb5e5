// SPDX-License-Identifier: MIT
//
// What systemd, or whoever else started this process, wants to know and has to say. The protocols
// are environment variables and datagrams: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3).
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "common/fd.hpp"

namespace mercury {

/// Tells it the STATE of this process. Nobody may be listening.
void notify_service_manager(std::string_view state);

/// Sockets that it has opened for this process, which do not block. Once: they are the caller's.
std::vector<Fd> sockets_of_service_manager();

/// It wants to hear "WATCHDOG=1" within each such time; nothing: it does not.
std::optional<std::chrono::microseconds> watchdog_time();

}  // namespace mercury
