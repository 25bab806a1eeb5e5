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

void LayerOption::changed(const Job& job) {
    if (!programs_)
        return;
    if (job.members.empty())
        return programs_->forbid(job.user->uid, job.number);
    std::vector<bpf::LayerClass> classes;
    for (const PlannedClass& planned : job.members.back()->plan) {
        classes.push_back(
            {planned.layers.last, marking_of_class(planned.mark, classes.size(), dscp_)});
    }
    if (const auto allowed = programs_->allow(job.user->uid, job.number, classes); !allowed)
        spdlog::warn("{}", allowed.error().message);
}

}  // namespace mercury::daemon
