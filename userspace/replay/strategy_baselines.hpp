// SPDX-License-Identifier: MIT
//
// The published systems that Mercury is compared with. Each is at its best: where the real system
// leaves something open, it has what helps it.
#pragma once

#include <memory>

#include "common/result.hpp"
#include "replay/strategies.hpp"

namespace mercury::replay {

using MadeStrategy = Result<std::unique_ptr<Strategy>>;

MadeStrategy make_fifo(const StrategySpec& spec);
MadeStrategy make_p3(const StrategySpec& spec);
MadeStrategy make_bytescheduler(const StrategySpec& spec);
MadeStrategy make_tictac(const StrategySpec& spec);
MadeStrategy make_allreduce(const StrategySpec& spec);
MadeStrategy make_tensorlights(const StrategySpec& spec);
MadeStrategy make_mercury_user(const StrategySpec& spec);

}  // namespace mercury::replay
