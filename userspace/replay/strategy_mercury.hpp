// SPDX-License-Identifier: MIT
//
// Mercury's own transport as a strategy: the library that is installed, on emulated hosts.
#pragma once

#include <memory>

#include "common/result.hpp"
#include "replay/strategies.hpp"

namespace mercury::replay {

/// All of it.
Result<std::unique_ptr<Strategy>> make_mercury(const StrategySpec& spec);
/// One class, so that packets leave in the order in which they came.
Result<std::unique_ptr<Strategy>> make_mercury_no_priority(const StrategySpec& spec);
/// A server answers only when all of its range of a tensor has been summed.
Result<std::unique_ptr<Strategy>> make_mercury_no_aggregation(const StrategySpec& spec);

}  // namespace mercury::replay
