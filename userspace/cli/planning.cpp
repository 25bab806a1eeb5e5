// SPDX-License-Identifier: MIT
#include <vector>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/text.hpp"
#include "common/logging.hpp"
#include "layers/models.hpp"
#include "layers/plan.hpp"

namespace mercury::cli {
namespace {

Json class_json(const PlannedClass& one, std::size_t band, const Profile& profile) {
    Json json;
    json["band"] = band;
    json["mark"] = one.mark;
    json["first_layer"] = one.layers.first;
    json["last_layer"] = one.layers.last;
    json["bytes"] = one.layers.bytes;
    json["deadline_ns"] = one.deadline ? Json(one.deadline->count()) : Json(nullptr);
    json["layers"] = Json::array();
    for (std::size_t layer = one.layers.first; layer <= one.layers.last; ++layer)
        json["layers"].push_back(profile.layers[layer].name);
    return json;
}

std::vector<std::string> class_row(const PlannedClass& one, std::size_t band,
                                   const Profile& profile) {
    const auto& [first, last, bytes] = one.layers;
    const auto& layers = profile.layers;
    const double share = 100 * static_cast<double>(bytes) / static_cast<double>(profile.bytes());
    const bool single = first == last;
    return {single ? fmt::format("{}", first) : fmt::format("{}-{}", first, last),
            printable(single ? layers[first].name
                             : fmt::format("{} .. {}", layers[first].name, layers[last].name)),
            fmt::format("{}", band),
            fmt::format("{:#x}", one.mark),
            bytes_text(bytes),
            fmt::format("{:.1f}%", share),
            one.deadline
                ? time_text(netlink::Time{static_cast<std::uint64_t>(one.deadline->count())})
                : "none"};
}

}  // namespace

Outcome plan(const PlanArguments& arguments, const Output& output) {
    const auto profile = model_or_file(arguments.model, {});
    if (!profile)
        return profile.error();
    const auto planned =
        plan_layers(profile.value(), arguments.classes, arguments.job, arguments.iteration);
    if (!planned)
        return planned.error();
    Json json;
    json["model"] = profile.value().name;
    json["job"] = arguments.job;
    json["classes"] = Json::array();
    std::vector<std::vector<std::string>> rows{
        {"LAYERS", "NAMES", "BAND", "MARK", "BYTES", "SHARE", "DEADLINE"}};
    for (std::size_t band = 0; band < planned.value().size(); ++band) {
        json["classes"].push_back(class_json(planned.value()[band], band, profile.value()));
        rows.push_back(class_row(planned.value()[band], band, profile.value()));
    }
    if (output.json)
        print(json, true);
    else
        print(table(rows, 2));
    return Exit::Done;
}

}  // namespace mercury::cli
