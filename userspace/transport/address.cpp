// SPDX-License-Identifier: MIT
#include "transport/address.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include <netdb.h>
#include <netinet/in.h>

#include <fmt/format.h>

namespace mercury::transport {
namespace {

/// As many servers as one host may be given in one word.
constexpr unsigned ports_max = 1024;

struct HostPorts {
    std::string host;
    unsigned first = 0;
    unsigned last = 0;
};

std::optional<unsigned> port_number(std::string_view text) {
    unsigned port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc{} || end != text.data() + text.size() || port > 65535)
        return std::nullopt;
    return port;
}

std::optional<HostPorts> split(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0)
        return std::nullopt;
    std::string_view host = text.substr(0, colon);
    const std::string_view ports = text.substr(colon + 1);
    if (host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    else if (host.find(':') != std::string_view::npos)
        return std::nullopt;

    const std::size_t dash = ports.find('-');
    const auto first = port_number(ports.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : port_number(ports.substr(dash + 1));
    if (host.empty() || !first || !last || *last < *first || *last - *first >= ports_max)
        return std::nullopt;
    return HostPorts{std::string(host), *first, *last};
}

}  // namespace

Result<std::vector<Address>> Address::parse(std::string_view text) {
    const auto parts = split(text);
    if (!parts) {
        return Error{
            fmt::format("\"{}\" is no address: HOST:PORT or HOST:FIRST-LAST, at most {} "
                        "ports, an IPv6 address in brackets",
                        text, ports_max)};
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(parts->host.c_str(), nullptr, &hints, &found); error != 0)
        return Error{fmt::format("cannot resolve \"{}\": {}", parts->host, gai_strerror(error))};
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);

    std::vector<Address> addresses;
    for (unsigned port = parts->first; port <= parts->last; ++port) {
        Address& address = addresses.emplace_back(Address{});
        std::memcpy(&address.storage_, found->ai_addr, found->ai_addrlen);
        address.size_ = found->ai_addrlen;
        // The port is at the same place in both families.
        static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
        reinterpret_cast<sockaddr_in*>(&address.storage_)->sin_port =
            htons(static_cast<std::uint16_t>(port));
    }
    return addresses;
}

Result<Address> Address::ask(const Fd& socket, Getter getter, const char* what) {
    Address address;
    address.size_ = sizeof(address.storage_);
    if (getter(socket.get(), reinterpret_cast<sockaddr*>(&address.storage_), &address.size_) != 0)
        return system_error(what);
    return address;
}

Result<Address> Address::of_socket(const Fd& socket) {
    return ask(socket, &getsockname, "getsockname");
}

Result<Address> Address::of_peer(const Fd& socket) {
    return ask(socket, &getpeername, "getpeername");
}

const sockaddr* Address::get() const {
    return reinterpret_cast<const sockaddr*>(&storage_);
}

bool Address::is_loopback() const {
    if (family() == AF_INET) {
        const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool Address::has_host_of(const Address& other) const {
    if (family() != other.family())
        return false;
    if (family() == AF_INET) {
        return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in*>(&other.storage_)->sin_addr.s_addr;
    }
    return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr,
                              &reinterpret_cast<const sockaddr_in6*>(&other.storage_)->sin6_addr);
}

std::string Address::to_string() const {
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    if (getnameinfo(get(), size_, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "an unknown address";
    return fmt::format(fmt::runtime(family() == AF_INET6 ? "[{}]:{}" : "{}:{}"), host.data(),
                       port.data());
}

}  // namespace mercury::transport
