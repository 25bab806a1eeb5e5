// SPDX-License-Identifier: MIT
//
// What the configuration says, as programs in the kernel read it.
#pragma once

#include <cstdint>

#include "bpf/layout.h"
#include "config/rules.hpp"
#include "marking/marking.hpp"

namespace mercury::bpf {

mercury_treatment treatment_of(const Marking& marking);

/// CGROUP is the number of the rule's, if it has one.
mercury_rule to_layout(const Rule& rule, std::uint64_t cgroup);

}  // namespace mercury::bpf
