// SPDX-License-Identifier: MIT
//
// The strategies that can be compared, by the names that experiments use.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/result.hpp"
#include "replay/communicator.hpp"

namespace mercury::replay {

/// A strategy as an experiment names it: "bytescheduler partition=512KB credit=4".
struct StrategySpec {
    std::string name;
    std::map<std::string, std::string> parameters;  // by name

    friend bool operator==(const StrategySpec&, const StrategySpec&) = default;
};

/// The error of a wrong name or parameter lists what is known. Opens no connection yet, so that an
/// experiment can be checked before it runs.
Result<std::unique_ptr<Strategy>> make_strategy(const StrategySpec& spec);

std::vector<std::string> strategy_names();

}  // namespace mercury::replay
