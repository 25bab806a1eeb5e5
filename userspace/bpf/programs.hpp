// SPDX-License-Identifier: MIT
//
// What all programs in the kernel have in common: how they are loaded and attached, and what it
// means if that fails. For this folder only: whoever includes it needs libbpf.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "common/fd.hpp"
#include "common/result.hpp"

namespace mercury::bpf {

struct DestroyLink {
    void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, DestroyLink>;

/// A skeleton, as bpftool makes them.
template <typename Skeleton>
struct DestroySkeleton {
    void operator()(Skeleton* skeleton) const { Skeleton::destroy(skeleton); }
};

/// What is missing before anything is tried: capabilities, the unified hierarchy of cgroups.
Result<void> check_privileges();

/// After libbpf has failed to load programs of TYPE with ERROR, an errno.
Error load_error(bpf_prog_type type, int error);

/// The root of the unified hierarchy, where programs see all processes.
Result<Fd> open_cgroup_root();

Result<Link> attach(const bpf_program& program, const Fd& cgroup);

/// All that programs and libbpf say goes to the log of who debugs, the last line to load_error().
void listen_to_libbpf();

}  // namespace mercury::bpf
