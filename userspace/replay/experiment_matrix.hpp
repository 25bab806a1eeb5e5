// SPDX-License-Identifier: MIT
//
// The cases of an experiment file: the product of its dimensions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/result.hpp"
#include "config/settings.hpp"

namespace mercury::replay {

/// The settings of one case.
struct Combination {
    SettingTable settings;                                    // without lists, but of qdiscs
    std::vector<std::pair<std::string, std::string>> labels;  // dimension, value
    std::string variant;                                      // of lists inside of the matrix
};

/// The tables of a file that cases may differ in.
const std::vector<std::string>& case_keys();

/// Every combination of the plain lists and of the entries of the matrix, in the order of the file,
/// the last dimension varying fastest.
Result<std::vector<Combination>> all_combinations(const SettingTable& file, Problems& problems);

}  // namespace mercury::replay
