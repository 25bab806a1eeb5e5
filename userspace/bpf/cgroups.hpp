// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mercury::bpf {

/// Where the unified hierarchy of cgroups is mounted; nothing: nowhere that this process sees.
std::optional<std::string> cgroup_mount();

/// The kernel's number of the cgroup at PATH, "/system.slice" for example;
/// MERCURY_NO_CGROUP: there is none.
std::uint64_t cgroup_id(const std::string& mount, const std::string& path);

}  // namespace mercury::bpf
