// SPDX-License-Identifier: MIT
#include "marking/marking.hpp"

#include <charconv>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "common/fd.hpp"
#include "hints/sockets.hpp"

namespace mercury {
namespace {

using hints::Code;
using hints::Failure;
using hints::SocketFacts;

/// "CS3" or "AF41", with digits of a range; nothing: it is not.
std::optional<std::uint8_t> named_dscp(std::string_view text) {
    const auto digit = [&](std::size_t at, char first, char last) -> std::optional<unsigned> {
        if (at >= text.size() || text[at] < first || text[at] > last)
            return std::nullopt;
        return static_cast<unsigned>(text[at] - '0');
    };
    if (text == "EF")
        return 46;
    if (text.size() == 3 && text.starts_with("CS")) {
        if (const auto precedence = digit(2, '0', '7'))
            return static_cast<std::uint8_t>(*precedence << 3);
    }
    if (text.size() == 4 && text.starts_with("AF")) {
        const auto group = digit(2, '1', '4');
        const auto drop = digit(3, '1', '3');
        if (group && drop)
            return static_cast<std::uint8_t>(*group << 3 | *drop << 1);
    }
    return std::nullopt;
}

Failure failure(Code code, std::string message) {
    return {code, std::move(message), "assign", {}};
}

Result<void> set_mark(int fd, std::uint32_t mark) {
    if (setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) != 0)
        return system_error("SO_MARK");
    return {};
}

/// For a socket of IPv6, also for what it sends as IPv4.
Result<void> set_dscp(int fd, int family, std::uint8_t dscp) {
    const int value = dscp << 2;
    if (setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof(value)) != 0 && family == AF_INET)
        return system_error("IP_TOS");
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof(value)) != 0)
        return system_error("IPV6_TCLASS");
    return {};
}

Result<void> apply(int fd, const SocketFacts& facts, const Marking& marking) {
    if (facts.mark != marking.mark) {
        if (auto set = set_mark(fd, marking.mark); !set)
            return set;
    }
    if (marking.dscp) {
        if (auto set = set_dscp(fd, facts.family, *marking.dscp); !set)
            return set;
    }
    // IP_TOS sets the priority as well, so this comes after it.
    return hints::set_priority(fd, marking.priority);
}

}  // namespace

Result<std::uint8_t> parse_dscp(std::string_view text) {
    if (const auto named = named_dscp(text))
        return *named;
    unsigned number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, number);
    if (text.empty() || failure != std::errc{} || rest != end || number > 63)
        return Error{fmt::format("\"{}\" is no DSCP: AF11 to AF43, CS0 to CS7, EF, 0 to 63", text)};
    return static_cast<std::uint8_t>(number);
}

std::variant<Marked, Failure> mark_socket(int fd, const Marking& marking) {
    const auto facts = hints::inspect_socket(fd);
    if (!facts)
        return failure(Code::Descriptor, facts.error().message);
    if (facts.value().mark != marking.mark && !facts.value().idle && !marking.also_busy) {
        return failure(Code::Busy,
                       "the socket has data underway, which a new mark would reorder: try again "
                       "when it is acknowledged");
    }
    if (marking.lowat) {
        if (auto set = hints::set_lowat(fd, facts.value(), *marking.lowat); !set)
            return failure(Code::Descriptor, set.error().message);
    }
    if (auto applied = apply(fd, facts.value(), marking); !applied)
        return failure(Code::Kernel, applied.error().message);
    return Marked{facts.value().cookie};
}

}  // namespace mercury
