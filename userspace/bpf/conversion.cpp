// SPDX-License-Identifier: MIT
#include "bpf/conversion.hpp"

#include <algorithm>
#include <cstring>

namespace mercury::bpf {

mercury_treatment treatment_of(const Marking& marking) {
    return {marking.mark, static_cast<std::uint32_t>(marking.priority), marking.dscp.value_or(0),
            marking.dscp ? 1U : 0U};
}

mercury_rule to_layout(const Rule& rule, std::uint64_t cgroup) {
    mercury_rule layout{};
    layout.cgroup = cgroup;
    layout.cgroup_mask = rule.cgroup.empty() ? 0 : ~0ULL;
    std::memcpy(layout.command, rule.command.data(),
                std::min(rule.command.size(), command_bytes_max));
    layout.command_mask = rule.command.empty() ? 0 : ~0ULL;
    layout.user = rule.user.value_or(0);
    layout.user_mask = rule.user ? ~0U : 0;
    const Address mask = rule.remote.mask();
    std::memcpy(layout.remote, rule.remote.address.data(), sizeof(layout.remote));
    std::memcpy(layout.remote_mask, mask.data(), sizeof(layout.remote_mask));
    layout.local_port = {rule.local_port.first, rule.local_port.last};
    layout.remote_port = {rule.remote_port.first, rule.remote_port.last};
    layout.treatment = treatment_of(rule.marking);
    return layout;
}

}  // namespace mercury::bpf
