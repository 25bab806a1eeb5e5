// SPDX-License-Identifier: MIT
//
// The commands for a configuration: diff and apply.
#include <functional>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "common/logging.hpp"
#include "config/changes.hpp"
#include "netlink/snapshot.hpp"

namespace mercury::cli {
namespace {

using netlink::Kernel;

Result<Changes> read_changes(Kernel& kernel, const std::vector<DeviceSettings>& devices) {
    const auto snapshot = netlink::read_snapshot(kernel);
    if (!snapshot)
        return snapshot.error();
    std::vector<netlink::Link> links;
    std::vector<netlink::Qdisc> qdiscs;
    std::vector<netlink::Class> classes;
    for (const auto& device : snapshot.value().devices) {
        links.push_back(device.link);
        qdiscs.insert(qdiscs.end(), device.qdiscs.begin(), device.qdiscs.end());
        for (const auto& state : device.mercury)
            classes.insert(classes.end(), state.classes.begin(), state.classes.end());
    }
    return changes_to(devices, links, qdiscs, classes);
}

Json change_json(const Change& change, const std::optional<Error>& error) {
    Json json;
    json["dev"] = change.device;
    json["parent"] = to_string(change.request.parent);
    json["kind"] = change.request.kind;
    json["replaces"] = change.replaces.empty() ? Json(nullptr) : Json(change.replaces);
    json["options"] = Json::array();
    for (const OptionChange& option : change.options) {
        json["options"].push_back(
            {{"name", option.name},
             {"from", option.from.empty() ? Json(nullptr) : Json(option.from)},
             {"to", option.to}});
    }
    json["error"] = error ? Json(error->message) : Json(nullptr);
    return json;
}

std::string change_text(const Change& change) {
    const netlink::QdiscRequest& request = change.request;
    const std::string place =
        request.parent == netlink::root ? "" : fmt::format(" {}", to_string(request.parent));
    std::string text = fmt::format("{}{}: {}", printable(change.device), place, request.kind);
    text += change.replaces.empty() ? "\n"
                                    : fmt::format(" instead of {}\n", printable(change.replaces));
    for (const OptionChange& option : change.options) {
        text += option.from.empty()
                    ? fmt::format("  {} {}\n", option.name, option.to)
                    : fmt::format("  {} {} -> {}\n", option.name, option.from, option.to);
    }
    return text;
}

/// Shows the changes, and does each with ACT, if there is one.
Outcome walk_changes(Kernel& kernel, const std::string& file, const Output& output,
                     const std::function<Result<void>(const Change&)>& act) {
    const auto devices = load_devices(file);
    if (!devices) {
        print_error(devices.error().message);
        return Exit::Usage;
    }
    const auto changes = read_changes(kernel, devices.value());
    if (!changes)
        return changes.error();
    const Changes& all = changes.value();
    Json json;
    json["changes"] = Json::array();
    bool failed = !all.missing.empty();
    for (const Change& change : all.changes) {
        std::optional<Error> error;
        if (const auto done = act ? act(change) : Result<void>{}; !done)
            error = done.error();
        json["changes"].push_back(change_json(change, error));
        if (!output.json && !error)
            print(change_text(change));
        if (error)
            print_error(fmt::format("{}: {}", printable(change.device), error->message));
        failed = failed || error;
    }
    json["missing"] = all.missing;
    if (output.json)
        print(json, true);
    for (const std::string& device : all.missing)
        print_error(fmt::format("there is no device {}", printable(device)));
    if (failed)
        return Exit::Failed;
    return act || all.changes.empty() ? Exit::Done : Exit::Differs;
}

}  // namespace

Outcome diff(Kernel& kernel, const std::string& file, const Output& output) {
    return walk_changes(kernel, file, output, {});
}

Outcome apply(Kernel& kernel, const std::string& file, const Output& output) {
    return walk_changes(kernel, file, output,
                        [&](const Change& change) { return make(kernel, change); });
}

}  // namespace mercury::cli
