// SPDX-License-Identifier: MIT
#include "marking/connections.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "hints/sockets.hpp"

namespace mercury {
namespace {

Error not_allowed(pid_t pid) {
    return Error{fmt::format(
        "the sockets of process {} cannot be taken: CAP_SYS_PTRACE is needed, as root has it",
        pid)};
}

/// Of what a descriptor is a link to, "socket:[123]".
std::optional<std::uint64_t> socket_inode(std::string_view target) {
    constexpr std::string_view prefix = "socket:[";
    std::uint64_t inode = 0;
    if (!target.starts_with(prefix))
        return {};
    const char* const end = target.data() + target.size();
    const auto [rest, wrong] = std::from_chars(target.data() + prefix.size(), end, inode);
    return wrong == std::errc{} && std::string_view(rest, end) == "]" ? std::optional(inode)
                                                                      : std::nullopt;
}

std::optional<Endpoint> ask(int (*which)(int, sockaddr*, socklen_t*), const Fd& socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (which(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
        return {};
    return endpoint_of(address);
}

/// Nothing if it is no such socket, or is not there any more.
Result<std::optional<Connection>> take(const Fd& process, pid_t pid, int number,
                                       std::uint64_t inode) {
    Fd socket(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), number, 0)));
    if (!socket && errno == EPERM)
        return not_allowed(pid);
    // It may be closed since it was seen, or be something else by now.
    if (!socket || !hints::inspect_socket(socket.get()))
        return std::optional<Connection>{};
    const auto local = ask(getsockname, socket);
    const auto remote = ask(getpeername, socket);
    if (!local || !remote)
        return std::optional<Connection>{};
    return std::optional(Connection{std::move(socket), number, inode, *local, *remote});
}

}  // namespace

Result<std::vector<Connection>> connections_of(pid_t pid) {
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!process && errno == ESRCH)
        return Error{fmt::format("there is no process {}", pid)};
    if (!process)
        return system_error(fmt::format("process {}", pid));
    std::error_code failed;
    std::filesystem::directory_iterator all(fmt::format("/proc/{}/fd", pid), failed);
    if (failed == std::errc::permission_denied)
        return not_allowed(pid);
    if (failed)
        return Error{fmt::format("process {}: {}", pid, failed.message())};
    std::vector<Connection> connections;
    for (const auto& entry : all) {
        const std::string target = std::filesystem::read_symlink(entry.path(), failed).string();
        if (failed == std::errc::permission_denied)
            return not_allowed(pid);
        const auto inode = socket_inode(target);
        const bool known = !inode || std::ranges::find(connections, *inode, &Connection::inode) !=
                                         connections.end();
        if (known)
            continue;
        auto taken = take(process, pid, std::stoi(entry.path().filename().string()), *inode);
        if (!taken)
            return taken.error();
        if (taken.value())
            connections.push_back(std::move(*taken.value()));
    }
    // They are numbered as they are made.
    std::ranges::sort(connections, {}, &Connection::inode);
    return connections;
}

}  // namespace mercury
