// SPDX-License-Identifier: MIT
#include "daemon/layer_option.hpp"

#include <utility>

#include <spdlog/spdlog.h>

namespace mercury::daemon {

LayerOption::LayerOption(const DscpOfClass& dscp, Load load)
    : dscp_(dscp), load_(std::move(load)) {}

void LayerOption::configure(bool wanted, const std::list<Job>& jobs) {
    state_ = wanted ? "on" : "off";
    if (!wanted)
        programs_.reset();
    if (wanted && !programs_) {
        auto loaded = load_();
        if (!loaded) {
            state_ = loaded.error().message;
            spdlog::error("the socket option is not in the kernel: {}", state_);
            return;
        }
        programs_ = std::move(loaded).value();
        spdlog::info("programs may mark their sockets by setsockopt()");
    }
    for (const Job& job : jobs)
        changed(job);
}

bool LayerOption::changed(const Job& job) {
    if (!programs_)
        return false;
    if (job.members.empty()) {
        programs_->forbid(job.user->uid, job.number);
        return false;
    }
    const std::vector<PlannedClass>& plan = job.members.back()->plan;
    std::vector<bpf::LayerClass> classes;
    for (std::size_t i = 0; i < plan.size(); ++i)
        classes.push_back({plan[i].layers.last, marking_of_class(plan, i, dscp_)});
    const auto allowed = programs_->allow(job.user->uid, job.number, classes);
    if (!allowed)
        spdlog::warn("{}", allowed.error().message);
    return static_cast<bool>(allowed);
}

}  // namespace mercury::daemon
