// SPDX-License-Identifier: MIT
//
// The rules of the configuration: they are in the kernel while this is there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bpf/rule_programs.hpp"
#include "common/reactor.hpp"
#include "config/rules.hpp"
#include "hints/protocol.hpp"

namespace mercury::daemon {

class Rules {
  public:
    using Load = std::function<Result<std::unique_ptr<bpf::RulePrograms>>(
        const std::vector<Rule>& rules, const bpf::RulePrograms* before)>;

    explicit Rules(Load load = bpf::RulePrograms::load);
    Rules(const Rules&) = delete;
    Rules& operator=(const Rules&) = delete;

    Result<void> start(Reactor& reactor);
    /// Rules that the kernel does not take are logged, and the old ones stay. Of a rule that has
    /// the same name as before the count goes on.
    void configure(const std::vector<Rule>& rules);

    std::vector<hints::Status::Rule> status() const;

  private:
    Result<void> find_cgroups();

    Load load_;
    std::vector<Rule> rules_;  // that are in the kernel, or should be
    std::unique_ptr<bpf::RulePrograms> programs_;
    std::map<std::string, bpf::RuleCount> before_;  // what earlier programs have counted, by name
    std::string problem_;  // why the configured rules are not in the kernel
    Timer second_;
};

}  // namespace mercury::daemon
