// SPDX-License-Identifier: MIT
#include "bpf/layer_programs.hpp"

#include <algorithm>
#include <utility>

#include <layers.skel.h>

#include <fmt/format.h>

#include "bpf/conversion.hpp"
#include "bpf/programs.hpp"
#include "hints/protocol.hpp"

namespace mercury::bpf {
namespace {

using Skeleton = std::unique_ptr<layers_bpf, DestroySkeleton<layers_bpf>>;

class Loaded : public LayerPrograms {
  public:
    explicit Loaded(Skeleton skeleton) : skeleton_(std::move(skeleton)) {}

    Result<void> attach_it();
    Result<void> allow(std::uint32_t user, unsigned number,
                       const std::vector<LayerClass>& classes) override;
    void forbid(std::uint32_t user, unsigned number) override;
    std::uint64_t sockets() const override;

  private:
    Skeleton skeleton_;
    Link link_;  // goes before the program
};

Result<void> Loaded::attach_it() {
    const auto root = open_cgroup_root();
    if (!root)
        return root.error();
    auto link = attach(*skeleton_->progs.layer_option, root.value());
    if (!link)
        return link.error();
    link_ = std::move(link).value();
    return {};
}

Result<void> Loaded::allow(std::uint32_t user, unsigned number,
                           const std::vector<LayerClass>& classes) {
    const mercury_job_key key{user, number};
    mercury_job_layers layers{};
    std::ranges::fill(layers.last_layer, UINT32_MAX);
    for (std::size_t i = 0; i < std::min(classes.size(), hints::classes_max); ++i) {
        layers.last_layer[i] = static_cast<std::uint32_t>(classes[i].last_layer);
        layers.treatments[i] = treatment_of(classes[i].marking);
    }
    if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.jobs), &key, &layers, BPF_ANY) != 0)
        return system_error(fmt::format("the socket option is not there for job {}", number));
    return {};
}

void Loaded::forbid(std::uint32_t user, unsigned number) {
    const mercury_job_key key{user, number};
    bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.jobs), &key);
}

std::uint64_t Loaded::sockets() const {
    const std::uint32_t key = 0;
    std::uint64_t count = 0;
    bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.marked), &key, &count);
    return count;
}

}  // namespace

Result<std::unique_ptr<LayerPrograms>> LayerPrograms::load() {
    static_assert(hints::classes_max == MERCURY_CLASSES_MAX);
    if (auto checked = check_privileges(); !checked)
        return checked.error();
    listen_to_libbpf();
    Skeleton skeleton(layers_bpf::open());
    if (!skeleton)
        return system_error("libbpf cannot read its programs");
    if (const int failed = layers_bpf::load(skeleton.get()); failed != 0)
        return load_error(BPF_PROG_TYPE_CGROUP_SOCKOPT, -failed);
    auto loaded = std::make_unique<Loaded>(std::move(skeleton));
    if (auto attached = loaded->attach_it(); !attached)
        return attached.error();
    return std::unique_ptr<LayerPrograms>(std::move(loaded));
}

}  // namespace mercury::bpf
