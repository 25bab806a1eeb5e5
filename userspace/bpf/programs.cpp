// SPDX-License-Identifier: MIT
#include "bpf/programs.hpp"

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <linux/capability.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "bpf/capabilities.hpp"
#include "bpf/cgroups.hpp"

namespace mercury::bpf {
namespace {

int log_line(libbpf_print_level /*level*/, const char* format, va_list arguments) {
    std::array<char, 4096> line{};
    const int size = std::vsnprintf(line.data(), line.size(), format, arguments);
    std::string_view text = line.data();
    while (text.ends_with('\n'))
        text.remove_suffix(1);
    spdlog::debug("{}", text);
    return size;
}

}  // namespace

void listen_to_libbpf() {
    libbpf_set_print(log_line);
}

Result<void> check_privileges() {
    if (!has_capability(CAP_BPF) || !has_capability(CAP_NET_ADMIN))
        return Error{"CAP_BPF and CAP_NET_ADMIN are needed, see mercuryd(8)"};
    if (!cgroup_mount()) {
        return Error{
            "no cgroup2 file system is mounted here: mount -t cgroup2 none /sys/fs/cgroup"};
    }
    return {};
}

Error load_error(bpf_prog_type type, int error) {
    if (error == ENOSYS)
        return Error{"the kernel has no BPF (CONFIG_BPF_SYSCALL)"};
    if (libbpf_probe_bpf_prog_type(type, nullptr) == 0)
        return Error{"the kernel has no BPF for cgroups (CONFIG_CGROUP_BPF)"};
    if (!has_capability(CAP_PERFMON)) {
        return Error{
            "this kernel does not take the programs without CAP_PERFMON (older ones never do, all "
            "not where a rule has a command), see mercuryd(8)"};
    }
    return Error{
        fmt::format("the kernel does not take the programs: {}; mercuryd --verbose logs why",
                    std::strerror(error))};
}

Result<Fd> open_cgroup_root() {
    const std::string path = cgroup_mount().value_or("/sys/fs/cgroup");
    Fd root(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root)
        return system_error(fmt::format("cannot open {}", path));
    return root;
}

Result<Link> attach(const bpf_program& program, const Fd& cgroup) {
    Link link(bpf_program__attach_cgroup(&program, cgroup.get()));
    if (!link) {
        return system_error(
            fmt::format("the program {} cannot be attached to the root of the cgroups",
                        bpf_program__name(&program)));
    }
    return link;
}

}  // namespace mercury::bpf
