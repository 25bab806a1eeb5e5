// SPDX-License-Identifier: MIT
//
// mercuryd.toml(5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/result.hpp"
#include "config/devices.hpp"
#include "config/rules.hpp"
#include "daemon/session.hpp"
#include "daemon/users.hpp"
#include "hints/protocol.hpp"

namespace mercury::daemon {

constexpr const char* default_settings = "/etc/mercury/mercuryd.toml";

/// Where Prometheus may ask.
struct MetricsSettings {
    std::string address = "127.0.0.1";  // of IPv4 or IPv6
    std::uint16_t port = 0;             // 0: nowhere
    bool job_names = false;             // as labels

    friend bool operator==(const MetricsSettings&, const MetricsSettings&) = default;
};

struct Settings {
    std::string socket = hints::default_socket;
    unsigned jobs = MERCURY_JOBS_DEFAULT;  // numbers 1 to jobs - 1 are given out
    DscpOfClass dscp;
    bool setsockopt = false;  // the socket option of mercury.h is offered
    Limits limits;
    MetricsSettings metrics;
    std::vector<DeviceSettings> devices;
    std::vector<Rule> rules;
};

/// SOURCE names the text in errors, of which there may be several, one in a line.
Result<Settings> parse_settings(std::string_view text, std::string_view source);
Result<Settings> load_settings(const std::filesystem::path& path);

}  // namespace mercury::daemon
