// SPDX-License-Identifier: MIT
#include "bpf/rule_programs.hpp"

#include <algorithm>
#include <utility>

#include <rules.skel.h>

#include "bpf/cgroups.hpp"
#include "bpf/conversion.hpp"
#include "bpf/programs.hpp"

namespace mercury::bpf {
namespace {

using Skeleton = std::unique_ptr<rules_bpf, DestroySkeleton<rules_bpf>>;

class Loaded : public RulePrograms {
  public:
    Loaded(Skeleton skeleton, std::vector<Rule> rules)
        : skeleton_(std::move(skeleton)),
          rules_(std::move(rules)),
          cgroups_(rules_.size(), MERCURY_NO_CGROUP),
          mount_(cgroup_mount().value_or("")) {}

    Result<void> write_rules();
    bool write_rule(std::size_t index) const;
    Result<void> attach_all(bool with_command);
    bool find_cgroups() override;
    std::vector<RuleCount> counts() const override;

    int listeners() const { return bpf_map__fd(skeleton_->maps.listeners); }

  private:
    Skeleton skeleton_;
    std::vector<Link> links_;  // go before the programs
    std::vector<Rule> rules_;
    std::vector<std::uint64_t> cgroups_;  // by rule; what is not there has nobody in it
    std::string mount_;
};

/// Also while the programs are at work: what does not change is written over by itself.
bool Loaded::write_rule(std::size_t index) const {
    const auto key = static_cast<std::uint32_t>(index);
    const mercury_rule layout = to_layout(rules_[index], cgroups_[index]);
    return bpf_map_update_elem(bpf_map__fd(skeleton_->maps.rules), &key, &layout, BPF_ANY) == 0;
}

Result<void> Loaded::write_rules() {
    find_cgroups();
    for (std::size_t i = 0; i < rules_.size(); ++i) {
        if (!write_rule(i))
            return system_error("a rule cannot be written");
    }
    return {};
}

bool Loaded::find_cgroups() {
    bool changed = false;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
        if (rules_[i].cgroup.empty())
            continue;
        const std::uint64_t now = cgroup_id(mount_, rules_[i].cgroup);
        if (now != cgroups_[i]) {
            cgroups_[i] = now;
            write_rule(i);
            changed = true;
        }
    }
    return changed;
}

Result<void> Loaded::attach_all(bool with_command) {
    const auto& programs = skeleton_->progs;
    const auto root = open_cgroup_root();
    if (!root)
        return root.error();
    for (const bpf_program* const program :
         {with_command ? programs.bound4_command : programs.bound4,
          with_command ? programs.bound6_command : programs.bound6, programs.accepted,
          with_command ? programs.connect4_command : programs.connect4,
          with_command ? programs.connect6_command : programs.connect6}) {
        auto link = attach(*program, root.value());
        if (!link)
            return link.error();
        links_.push_back(std::move(link).value());
    }
    return {};
}

std::vector<RuleCount> Loaded::counts() const {
    std::vector<RuleCount> counts;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
        const auto key = static_cast<std::uint32_t>(i);
        mercury_rule_counters counted{};
        bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.counters), &key, &counted);
        counts.push_back({counted.matched, counted.failed,
                          rules_[i].cgroup.empty() || cgroups_[i] != MERCURY_NO_CGROUP});
    }
    return counts;
}

}  // namespace

Result<std::unique_ptr<RulePrograms>> RulePrograms::load(const std::vector<Rule>& rules,
                                                         const RulePrograms* before) {
    static_assert(rules_max == MERCURY_RULES_MAX && rules_max <= hints::rules_max &&
                  cgroup_depth_max == MERCURY_CGROUP_DEPTH &&
                  command_bytes_max == MERCURY_COMMAND_BYTES - 1);
    if (auto checked = check_privileges(); !checked)
        return checked.error();
    listen_to_libbpf();
    Skeleton skeleton(rules_bpf::open());
    if (!skeleton)
        return system_error("libbpf cannot read its programs");
    const bool with_command =
        std::ranges::any_of(rules, [](const Rule& rule) { return !rule.command.empty(); });
    const auto& programs = skeleton->progs;
    for (bpf_program* const program :
         {programs.connect4, programs.connect6, programs.bound4, programs.bound6})
        bpf_program__set_autoload(program, !with_command);
    for (bpf_program* const program : {programs.connect4_command, programs.connect6_command,
                                       programs.bound4_command, programs.bound6_command})
        bpf_program__set_autoload(program, with_command);
    if (const auto* const loaded = dynamic_cast<const Loaded*>(before))
        bpf_map__reuse_fd(skeleton->maps.listeners, loaded->listeners());
    if (const int failed = rules_bpf::load(skeleton.get()); failed != 0)
        return load_error(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, -failed);
    auto loaded = std::make_unique<Loaded>(std::move(skeleton), rules);
    if (auto written = loaded->write_rules(); !written)
        return written.error();
    if (auto attached = loaded->attach_all(with_command); !attached)
        return attached.error();
    return std::unique_ptr<RulePrograms>(std::move(loaded));
}

}  // namespace mercury::bpf
