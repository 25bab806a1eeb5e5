// SPDX-License-Identifier: MIT
#include "common/service_manager.hpp"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace mercury {
namespace {

std::optional<std::int64_t> number_in_environment(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr)
        return std::nullopt;
    std::int64_t number = 0;
    const char* const end = text + std::strlen(text);
    const auto [rest, failure] = std::from_chars(text, end, number);
    return failure == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

/// Whether a variable that goes with a process was meant for this one, and not for one before it.
bool is_for_us(const char* pid_name) {
    return number_in_environment(pid_name) == getpid();
}

}  // namespace

void notify_service_manager(std::string_view state) {
    const char* const given = std::getenv("NOTIFY_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string_view path = given == nullptr ? "" : given;
    if (path.empty() || path.size() >= sizeof(address.sun_path))
        return;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path.front() == '@')  // an abstract name
        address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address), size);
}

std::vector<Fd> sockets_of_service_manager() {
    constexpr int first = 3;  // SD_LISTEN_FDS_START
    std::vector<Fd> sockets;
    if (is_for_us("LISTEN_PID")) {
        const std::int64_t count = number_in_environment("LISTEN_FDS").value_or(0);
        for (int fd = first; fd < first + count; ++fd) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            // Those of systemd are, but not of all others, systemd-socket-activate(1) among them.
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
            sockets.emplace_back(fd);
        }
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return sockets;
}

std::optional<std::chrono::microseconds> watchdog_time() {
    const auto time = number_in_environment("WATCHDOG_USEC");
    const bool for_another = std::getenv("WATCHDOG_PID") != nullptr && !is_for_us("WATCHDOG_PID");
    if (!time || *time <= 0 || for_another)
        return std::nullopt;
    return std::chrono::microseconds(*time);
}

}  // namespace mercury
