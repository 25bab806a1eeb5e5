// SPDX-License-Identifier: MIT
//
// What all commands have in common: how they are told to print, how they do, and how they end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/json.hpp"
#include "common/result.hpp"

namespace mercury::cli {

enum Exit : int {
    Done = 0,
    Differs = 1,  // or something to mend
    Usage = 2,    // or a file with mistakes
    Failed = 3,   // what was asked for could not be done
};

/// An error ends with Failed.
using Outcome = Result<Exit>;

struct Output {
    std::string device;  // "": all
    bool json = false;
    bool watch = false;
    std::chrono::nanoseconds interval = std::chrono::seconds(1);
    std::uint64_t count = 0;  // 0: for ever
};

/// To stdout at once, since whoever reads it may wait for it.
void print(std::string_view text);
/// With line breaks inside, or without.
void print(const Json& json, bool pretty);
/// To stderr, after what stdout was given.
void print_error(std::string_view message);

}  // namespace mercury::cli
