// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "common/reactor.hpp"
#include "common/result.hpp"

namespace mercury::cli {

/// Calls STEP at once and then every INTERVAL, COUNT times (0: for ever), until it fails, REACTOR
/// is stopped or a signal says to end, which is no error.
Result<void> repeat(Reactor& reactor, std::chrono::nanoseconds interval, std::uint64_t count,
                    const std::function<Result<void>()>& step);

}  // namespace mercury::cli
