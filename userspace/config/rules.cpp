// SPDX-License-Identifier: MIT
#include "config/rules.hpp"

#include <algorithm>
#include <array>

#include <pwd.h>

#include <fmt/format.h>

#include "hints/sockets.hpp"
#include "layers/classes.hpp"
#include "netlink/types.hpp"

namespace mercury {
namespace {

constexpr std::int64_t priority_max = 6;
constexpr std::int64_t uid_max = 0xfffffffe;

std::optional<std::uint32_t> uid_of(const std::string& name) {
    const passwd* const entry = getpwnam(name.c_str());
    return entry == nullptr ? std::nullopt : std::optional(entry->pw_uid);
}

/// A name or a number.
void read_user(SettingReader& reader, Rule& rule) {
    const Setting* const setting = reader.any("user");
    if (setting == nullptr)
        return;
    if (std::holds_alternative<std::int64_t>(setting->value)) {
        rule.user = static_cast<std::uint32_t>(reader.whole("user", 0, 0, uid_max));
        return;
    }
    const std::string name = reader.text("user", "root");
    rule.user = uid_of(name);
    if (!rule.user)
        reader.refuse("user", fmt::format("there is no user \"{}\"", name));
}

/// "/a/b", from the root of the cgroups.
void read_cgroup(SettingReader& reader, Rule& rule) {
    if (!reader.has("cgroup"))
        return;
    std::string path = reader.text("cgroup", "/a");
    while (path.size() > 1 && path.ends_with('/'))
        path.pop_back();
    const bool dots = path.ends_with("/.") || path.ends_with("/..") ||
                      path.find("/./") != std::string::npos ||
                      path.find("/../") != std::string::npos;
    if (path.size() < 2 || !path.starts_with('/') || path.find("//") != std::string::npos || dots) {
        reader.refuse("cgroup",
                      "must be a path from the root of the cgroups, such as "
                      "\"/system.slice/backup.service\"");
    } else if (std::ranges::count(path, '/') > static_cast<std::ptrdiff_t>(cgroup_depth_max)) {
        reader.refuse("cgroup", fmt::format("must be at most {} deep", cgroup_depth_max));
    }
    rule.cgroup = path;
}

void read_command(SettingReader& reader, Rule& rule) {
    if (!reader.has("command"))
        return;
    rule.command = reader.text("command", "a");
    if (rule.command.empty() || rule.command.size() > command_bytes_max) {
        reader.refuse("command",
                      fmt::format("must have 1 to {} bytes, as /proc/PID/comm has it: the kernel "
                                  "keeps no more of a program's name",
                                  command_bytes_max));
    }
}

/// PARSE(text) of the word at KEY, if there is one.
template <typename T>
void read_word(SettingReader& reader, const char* key, Result<T> (*parse)(std::string_view),
               auto& into) {
    if (!reader.has(key))
        return;
    const auto parsed = parse(reader.word(key, ""));
    if (parsed)
        into = parsed.value();
    else
        reader.refuse(key, parsed.error().message);
}

void read_marking(SettingReader& reader, Marking& marking) {
    reader.require("band", "0 is sent first");
    const auto job = static_cast<unsigned>(reader.whole("job", 0, 0, MERCURY_JOBS_MAX - 1));
    const auto band = static_cast<std::size_t>(reader.whole("band", 0, 0, MERCURY_BANDS_MAX - 1));
    marking.mark = mark_of_class(job, band);
    marking.priority =
        static_cast<int>(reader.whole("priority", hints::priority_of_class(band), 0, priority_max));
    read_word(reader, "dscp", &parse_dscp, marking.dscp);
}

bool has_condition(const SettingReader& reader) {
    return std::ranges::any_of(
        std::to_array({"user", "cgroup", "command", "local_port", "remote_port", "remote"}),
        [&](const char* key) { return reader.has(key); });
}

Rule read_rule(SettingReader& reader) {
    Rule rule;
    reader.require("name", "status counts by it");
    rule.name = reader.text("name", "rule");
    if (const auto checked = hints::check_name("it", rule.name); !checked)
        reader.refuse("name", checked.error().message);
    read_user(reader, rule);
    read_cgroup(reader, rule);
    read_command(reader, rule);
    read_word(reader, "local_port", &parse_ports, rule.local_port);
    read_word(reader, "remote_port", &parse_ports, rule.remote_port);
    read_word(reader, "remote", &parse_prefix, rule.remote);
    read_marking(reader, rule.marking);
    if (!has_condition(reader)) {
        reader.refuse("",
                      "has no condition and would mark everything: user, cgroup, command, "
                      "local_port, remote_port, remote");
    }
    reader.finish();
    return rule;
}

}  // namespace

std::vector<Rule> read_rules(SettingReader& file) {
    std::vector<Rule> rules;
    for (SettingReader& reader : file.list_of_tables("rule")) {
        Rule rule = read_rule(reader);
        if (std::ranges::find(rules, rule.name, &Rule::name) != rules.end())
            reader.refuse("name", fmt::format("\"{}\" is here twice", rule.name));
        rules.push_back(std::move(rule));
    }
    if (rules.size() > rules_max)
        file.refuse("rule", fmt::format("there may be {} at most", rules_max));
    return rules;
}

}  // namespace mercury
