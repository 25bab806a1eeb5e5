// SPDX-License-Identifier: MIT
//
// Which sockets of programs that cannot be changed are marked, and how:
//
//     [[rule]]
//     name = "backup"
//     user = "backup"
//     remote = "10.1.0.0/16"
//     remote_port = "873-874"
//     job = 3
//     band = 5
//
// All conditions of a rule must hold, and the first rule that fits counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "hints/protocol.hpp"
#include "marking/endpoints.hpp"
#include "marking/marking.hpp"

namespace mercury {

constexpr std::size_t rules_max = 16;  // the kernel looks at each for each connection
constexpr std::size_t cgroup_depth_max = 8;  // below the root
constexpr std::size_t command_bytes_max = 15;

struct Rule {
    std::string name;
    std::optional<std::uint32_t> user;
    std::string cgroup;   // and all below it: "/system.slice/backup.service"; empty: all
    std::string command;  // as the kernel has it; empty: all
    PortRange local_port;
    PortRange remote_port;
    Prefix remote;
    Marking marking;

    friend bool operator==(const Rule&, const Rule&) = default;
};

/// The [[rule]] tables in FILE. What is wrong with them goes to its problems.
std::vector<Rule> read_rules(SettingReader& file);

}  // namespace mercury
