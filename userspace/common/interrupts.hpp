// SPDX-License-Identifier: MIT
#pragma once

#include "common/fd.hpp"
#include "common/result.hpp"

namespace mercury {

/// Becomes readable at SIGINT, SIGTERM or SIGHUP, which no longer kill this process, so that it
/// can clean up. To be called before there are threads, which inherit that.
Result<Fd> interrupts();

}  // namespace mercury
