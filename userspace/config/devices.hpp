// SPDX-License-Identifier: MIT
//
// The devices of a configuration file and the mercury qdisc at the root of each:
//
//     [[device]]
//     name = "eth0"
//     rate = "9.7gbit"
//     deadlines = ["0:3-5 2ms", "7 none"]
//     weights = ["1 4", "2-3 2"]
//     mq = true
//
// Every option has the name that it has in tc, see netlink/options.hpp. One that is not given has
// the module's default. Deadlines that are not given are left to whoever sets them, which mostly
// is mercuryd, and so are weights. With mq each transmit queue has a qdisc of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.hpp"
#include "config/settings.hpp"
#include "netlink/types.hpp"

namespace mercury {

struct DeviceSettings {
    std::string name;
    netlink::MercuryOptions options;  // all but `deadlines` are set
    bool mq = false;                  // one below each transmit queue of mq, instead of at the root
    std::optional<std::vector<std::uint32_t>> weights{};  // of all jobs
};

/// A run of jobs.
struct JobWeight {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    std::uint32_t weight = MERCURY_WEIGHT_DEFAULT;

    friend bool operator==(const JobWeight&, const JobWeight&) = default;
};

/// "JOB[-JOB] WEIGHT", such as "2-3 2".
Result<JobWeight> parse_weight(std::string_view text);

/// The [[device]] tables in FILE. What is wrong with them goes to its problems.
std::vector<DeviceSettings> read_devices(SettingReader& file);

/// Those of the file at PATH, of which there must be one at least. What else is in it is for
/// others.
Result<std::vector<DeviceSettings>> load_devices(const std::filesystem::path& path);

/// "[JOB:]BAND[-BAND] TIME" as tc has it, such as "0:3-5 2ms" or "7 none".
Result<netlink::Deadline> parse_deadline(std::string_view text);

/// As parse_deadline() reads it.
std::string to_text(const netlink::Deadline& deadline);

}  // namespace mercury
