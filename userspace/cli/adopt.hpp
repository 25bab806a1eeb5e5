// SPDX-License-Identifier: MIT
//
// Marks the connections of programs that run and know nothing of Mercury.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "cli/output.hpp"
#include "marking/endpoints.hpp"

namespace mercury::cli {

struct BandRange {
    std::size_t first = 0;
    std::size_t last = 0;

    /// The connections are spread over the bands in equal runs: that of number INDEX of COUNT.
    std::size_t of(std::size_t index, std::size_t count) const;

    friend bool operator==(const BandRange&, const BandRange&) = default;
};

/// "3" or "0-3", of 0 to 1023.
Result<BandRange> parse_bands(std::string_view text);

struct AdoptArguments {
    std::vector<pid_t> pids;
    unsigned job = 0;
    BandRange bands;
    PortRange local_port;
    PortRange remote_port;
    Prefix remote;
    std::optional<int> priority;  // otherwise that of the band
    std::optional<std::uint8_t> dscp;
    std::chrono::nanoseconds wait{0};  // for connections to have nothing underway
    bool force = false;                // those that still have
    bool dry_run = false;
};

Outcome adopt(const AdoptArguments& arguments, const Output& output);

}  // namespace mercury::cli
