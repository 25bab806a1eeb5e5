// SPDX-License-Identifier: MIT
#include "daemon/settings.hpp"

#include <fstream>
#include <sstream>
#include <utility>

#include <arpa/inet.h>

#include <fmt/format.h>

#include "common/fd.hpp"
#include "config/settings.hpp"
#include "hints/message_socket.hpp"

namespace mercury::daemon {
namespace {

constexpr std::int64_t count_max = 1'000'000;

void read_hints(SettingReader reader, Settings& settings) {
    settings.socket = reader.text("socket", settings.socket);
    settings.jobs = static_cast<unsigned>(reader.whole("jobs", settings.jobs, 2, MERCURY_JOBS_MAX));
    for (const std::string& text : reader.texts("dscp")) {
        if (const auto dscp = parse_dscp(text))
            settings.dscp.push_back(dscp.value());
        else
            reader.refuse("dscp", dscp.error().message);
    }
    settings.setsockopt = reader.flag("setsockopt", settings.setsockopt);
    if (!hints::unix_address(settings.socket))
        reader.refuse("socket", "is too long for the path of a socket, or empty");
    reader.finish();
}

void read_limits(SettingReader reader, Limits& limits) {
    const auto read = [&reader](const char* key, std::size_t& limit) {
        limit = static_cast<std::size_t>(
            reader.whole(key, static_cast<std::int64_t>(limit), 1, count_max));
    };
    read("clients", limits.clients);
    read("jobs", limits.jobs);
    read("layers", limits.layers);
    read("sockets", limits.sockets);
    limits.messages =
        static_cast<std::uint32_t>(reader.whole("messages", limits.messages, 1, count_max));
    reader.finish();
}

bool is_address(const std::string& text) {
    in6_addr parsed{};
    return inet_pton(AF_INET, text.c_str(), &parsed) == 1 ||
           inet_pton(AF_INET6, text.c_str(), &parsed) == 1;
}

void read_metrics(SettingReader reader, MetricsSettings& metrics) {
    metrics.port = static_cast<std::uint16_t>(reader.whole("port", metrics.port, 1, 65535));
    metrics.address = reader.text("address", metrics.address);
    metrics.job_names = reader.flag("job_names", metrics.job_names);
    if (!is_address(metrics.address))
        reader.refuse("address", "must be an address of IPv4 or IPv6, such as \"127.0.0.1\"");
    if (reader.has("address") || reader.has("job_names"))
        reader.require("port", "without one, nobody can ask for metrics");
    reader.finish();
}

}  // namespace

Result<Settings> parse_settings(std::string_view text, std::string_view source) {
    const auto table = parse_toml(text, source);
    if (!table)
        return table.error();
    Problems problems{std::string(source)};
    SettingReader file(table.value(), "", 1, problems);
    Settings settings;
    read_hints(file.table("hints"), settings);
    read_limits(file.table("limits"), settings.limits);
    read_metrics(file.table("metrics"), settings.metrics);
    settings.devices = read_devices(file);
    settings.rules = read_rules(file);
    file.finish();
    if (auto outcome = problems.outcome(); !outcome)
        return outcome.error();
    return settings;
}

Result<Settings> load_settings(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file)
        return system_error(path.string());
    return parse_settings(content.str(), path.string());
}

}  // namespace mercury::daemon
