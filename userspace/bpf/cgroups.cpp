// SPDX-License-Identifier: MIT
#include "bpf/cgroups.hpp"

#include <fstream>
#include <sstream>

#include <sys/stat.h>

#include "bpf/layout.h"

namespace mercury::bpf {

std::optional<std::string> cgroup_mount() {
    std::ifstream mounts("/proc/self/mounts");
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream words(line);
        std::string device;
        std::string path;
        std::string type;
        if (words >> device >> path >> type && type == "cgroup2")
            return path;
    }
    return std::nullopt;
}

std::uint64_t cgroup_id(const std::string& mount, const std::string& path) {
    struct stat found {};
    // The number of a cgroup is that of its folder.
    if (stat((mount + path).c_str(), &found) != 0 || !S_ISDIR(found.st_mode))
        return MERCURY_NO_CGROUP;
    return found.st_ino;
}

}  // namespace mercury::bpf
