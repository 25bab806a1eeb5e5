// SPDX-License-Identifier: MIT
#include "daemon/rules.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace mercury::daemon {
namespace {

// How soon a cgroup that was made is known.
constexpr std::chrono::seconds between_looks{1};

}  // namespace

Rules::Rules(Load load) : load_(std::move(load)) {}

Result<void> Rules::start(Reactor& reactor) {
    if (auto attached = second_.attach(reactor, [this] { return find_cgroups(); }); !attached)
        return attached;
    return second_.arm(Clock::now() + between_looks);
}

void Rules::configure(const std::vector<Rule>& rules) {
    problem_.clear();
    if (programs_ && rules == rules_)
        return;
    if (rules.empty()) {
        programs_.reset();
        rules_.clear();
        before_.clear();
        return;
    }
    auto loaded = load_(rules, programs_.get());
    if (!loaded) {
        problem_ = loaded.error().message;
        spdlog::error("{}: {}",
                      programs_ ? "the new rules are not in the kernel, the old ones stay"
                                : "the rules are not in the kernel",
                      problem_);
        if (!programs_)
            rules_ = rules;
        return;
    }
    std::map<std::string, bpf::RuleCount> counted;
    for (const hints::Status::Rule& rule : status())
        counted[rule.name] = {rule.sockets, rule.failed};
    before_ = std::move(counted);
    programs_ = std::move(loaded).value();
    rules_ = rules;
    spdlog::info("{} rules are in the kernel", rules_.size());
}

Result<void> Rules::find_cgroups() {
    if (programs_ && programs_->find_cgroups())
        spdlog::debug("a cgroup of a rule has come or gone");
    return second_.arm(Clock::now() + between_looks);
}

std::vector<hints::Status::Rule> Rules::status() const {
    const auto counts =
        programs_ ? programs_->counts() : std::vector<bpf::RuleCount>(rules_.size());
    std::vector<hints::Status::Rule> status;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
        hints::Status::Rule rule{rules_[i].name, counts[i].matched, counts[i].failed, problem_};
        if (const auto before = before_.find(rule.name); before != before_.end()) {
            rule.sockets += before->second.matched;
            rule.failed += before->second.failed;
        }
        if (rule.problem.empty() && !counts[i].has_cgroup)
            rule.problem = fmt::format("there is no cgroup {}", rules_[i].cgroup);
        status.push_back(std::move(rule));
    }
    return status;
}

}  // namespace mercury::daemon
