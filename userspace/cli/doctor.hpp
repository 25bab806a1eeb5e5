// SPDX-License-Identifier: MIT
//
// What keeps Mercury from working well on this machine, and what mends it. Facts are gathered in
// one place and judged in another, so that every judgement can be tested.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/json.hpp"
#include "cli/snapshot.hpp"
#include "netlink/kernel.hpp"

namespace mercury::cli {

/// What rtnetlink does not say of a device.
struct Nic {
    DeviceState state;
    std::string driver;                  // empty: no hardware, be it emulated
    std::optional<std::uint64_t> speed;  // Mbit/s
    std::size_t queues = 1;              // to send, in use
    bool gso = false;                    // in software or hardware
};

enum class Plugin : std::uint8_t { Found, Missing, NoTc };

struct Facts {
    std::string release;  // of the kernel
    bool module_loaded = false;
    bool module_loadable = false;
    Plugin plugin = Plugin::Found;
    std::optional<std::uint64_t> notsent_lowat;  // bytes
    std::optional<std::uint64_t> limit_output;   // bytes
    std::vector<Nic> nics;
};

struct Finding {
    bool good = true;
    std::string check;  // stable: "module", "rate"; the same for several devices
    std::string device;
    std::string what;
    std::string why;   // it matters; empty if good
    std::string mend;  // a command; empty if good
};

Result<Facts> gather(netlink::Kernel& kernel);

/// In the order in which they should be mended.
std::vector<Finding> diagnose(const Facts& facts);

std::string doctor_text(const std::vector<Finding>& findings);
Json doctor_json(const std::vector<Finding>& findings);

}  // namespace mercury::cli
