// SPDX-License-Identifier: MIT
#include "cli/daemon.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "common/fd.hpp"
#include "common/logging.hpp"
#include "hints/message_socket.hpp"

namespace mercury::cli {
namespace {

constexpr int patience_ms = 2000;

Error no_answer(const std::string& path) {
    return Error{fmt::format("mercuryd at {} does not answer", path)};
}

/// One request, and its answer, which must be of type T.
template <typename T>
Result<T> ask(const Fd& socket, const std::string& path, const hints::Request& request) {
    if (hints::send(socket, hints::encode(request)) != hints::Transfer::Done)
        return no_answer(path);
    pollfd ready{socket.get(), POLLIN, 0};
    hints::Packet packet;
    if (poll(&ready, 1, patience_ms) <= 0 ||
        hints::receive(socket, packet) != hints::Transfer::Done)
        return no_answer(path);
    auto answer = hints::decode_answer(packet.bytes());
    if (!answer)
        return Error{fmt::format("what mercuryd at {} answers is no message", path)};
    if (auto* const wanted = std::get_if<T>(&answer.value()))
        return std::move(*wanted);
    const auto* const failure = std::get_if<hints::Failure>(&answer.value());
    return Error{fmt::format(
        "mercuryd at {}: {}", path,
        failure != nullptr ? printable(failure->message) : "that is not the answer to this")};
}

std::string rule_text(const hints::Status::Rule& rule) {
    std::string text =
        fmt::format("  rule {}: {} sockets marked", printable(rule.name), rule.sockets);
    if (rule.failed != 0)
        text += fmt::format(", {} failed", rule.failed);
    if (!rule.problem.empty())
        text += fmt::format("; {}", printable(rule.problem));
    return text + '\n';
}

}  // namespace

std::string daemon_socket() {
    const char* const path = std::getenv("MERCURY_SOCKET");
    return path != nullptr ? path : hints::default_socket;
}

Result<std::optional<hints::Status>> ask_daemon(const std::string& path) {
    const auto address = hints::unix_address(path);
    if (!address)
        return address.error();
    const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket)
        return system_error("socket");
    if (connect(socket.get(), address.value().generic(), address.value().size) != 0) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            return std::optional<hints::Status>{};
        return system_error(fmt::format("mercuryd at {}", path));
    }
    const auto welcome =
        ask<hints::Welcome>(socket, path, hints::Hello{.client = "mercuryctl " MERCURY_VERSION});
    if (!welcome)
        return welcome.error();
    auto status = ask<hints::Status>(socket, path, hints::QueryStatus{});
    if (!status)
        return status.error();
    return std::optional(std::move(status).value());
}

Json daemon_json(const std::optional<hints::Status>& daemon) {
    if (!daemon)
        return nullptr;
    // The daemon's own words are the protocol's, so that there is one description of both.
    Json json = Json::parse(hints::encode(hints::Answer{*daemon}));
    json.erase("type");
    return json;
}

std::string daemon_text(const std::optional<hints::Status>& daemon) {
    if (!daemon)
        return "mercuryd is not running\n";
    std::string text =
        fmt::format("{}: up {:%H:%M:%S}, {} clients, {} jobs, {} sockets marked, {} errors\n",
                    printable(daemon->daemon), daemon->uptime, daemon->clients, daemon->jobs.size(),
                    daemon->sockets, daemon->errors);
    for (const hints::Status::Device& device : daemon->devices) {
        if (!device.problem.empty())
            text += fmt::format("  {}: {}\n", printable(device.name), printable(device.problem));
    }
    if (daemon->setsockopt != "on" && daemon->setsockopt != "off")
        text += fmt::format("  setsockopt: {}\n", printable(daemon->setsockopt));
    for (const hints::Status::Rule& rule : daemon->rules)
        text += rule_text(rule);
    return text;
}

const hints::Status::Job* find_job(const std::optional<hints::Status>& daemon, unsigned number) {
    if (!daemon)
        return nullptr;
    const auto found = std::ranges::find(daemon->jobs, number, &hints::Status::Job::number);
    return found == daemon->jobs.end() ? nullptr : &*found;
}

std::string user_name(std::uint32_t user) {
    const passwd* const entry = getpwuid(user);
    return entry != nullptr ? entry->pw_name : fmt::format("{}", user);
}

}  // namespace mercury::cli
