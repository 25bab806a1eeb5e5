// SPDX-License-Identifier: MIT
//
// Rules in the kernel, by rules.bpf.c. They go when the object does, or the process: nothing is
// pinned. Sockets keep their marks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.hpp"
#include "config/rules.hpp"

namespace mercury::bpf {

struct RuleCount {
    std::uint64_t matched = 0;  // sockets that were marked
    std::uint64_t failed = 0;   // that the kernel did not let be marked in full
    bool has_cgroup = true;     // or it names one that there is not
};

class RulePrograms {
  public:
    /// Attached when this returns. BEFORE, if there is one, may be destroyed afterwards: in between
    /// both are at work, and the first one that sees a socket marks it. What listening sockets are
    /// known to belong to is taken over from it.
    static Result<std::unique_ptr<RulePrograms>> load(const std::vector<Rule>& rules,
                                                      const RulePrograms* before);
    RulePrograms(const RulePrograms&) = delete;
    RulePrograms& operator=(const RulePrograms&) = delete;
    virtual ~RulePrograms() = default;

    /// Cgroups come and go, and one that is made again is another one. True: something is new.
    virtual bool find_cgroups() = 0;

    /// In the order of the rules.
    virtual std::vector<RuleCount> counts() const = 0;

  protected:
    RulePrograms() = default;
};

}  // namespace mercury::bpf
