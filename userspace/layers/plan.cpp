// SPDX-License-Identifier: MIT
#include "layers/plan.hpp"

#include <algorithm>
#include <cmath>

#include <mercury.h>

namespace mercury {

using std::chrono::nanoseconds;

std::vector<nanoseconds> slack_of(const std::vector<Layer>& layers) {
    std::vector<nanoseconds> slack;
    nanoseconds before{0};
    for (const Layer& layer : layers) {
        slack.push_back(before);
        before += layer.backward + layer.forward;
    }
    return slack;
}

Result<std::vector<PlannedClass>> plan_layers(const Profile& profile, std::size_t max_classes,
                                              unsigned job, std::optional<nanoseconds> interval) {
    const auto groups = group_layers(profile, max_classes);
    if (!groups)
        return groups.error();
    const std::vector<nanoseconds> slack = slack_of(profile.layers);
    const double compute = static_cast<double>(profile.compute().count());
    const double pace = interval ? static_cast<double>(interval->count()) / compute : 1;

    std::vector<PlannedClass> plan;
    for (const PriorityClass& group : groups.value()) {
        PlannedClass& planned = plan.emplace_back();
        planned.layers = group;
        planned.mark = mark_of_class(job, plan.size() - 1);
        if (compute > 0) {
            const double ns = static_cast<double>(slack[group.first].count()) * pace;
            planned.deadline = nanoseconds(std::llround(std::clamp(
                ns, static_cast<double>(MERCURY_TIME_MIN), static_cast<double>(MERCURY_TIME_MAX))));
        }
    }
    return plan;
}

std::size_t class_of_layer(const std::vector<PlannedClass>& plan, std::size_t layer) {
    const auto found = std::ranges::find_if(
        plan, [layer](const PlannedClass& planned) { return layer <= planned.layers.last; });
    return static_cast<std::size_t>(found - plan.begin());
}

}  // namespace mercury
