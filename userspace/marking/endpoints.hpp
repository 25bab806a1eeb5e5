// SPDX-License-Identifier: MIT
//
// Which connections are meant: their ports and the address at the other end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/socket.h>

#include "common/result.hpp"

namespace mercury {

/// As it is on the wire; one of IPv4 is mapped into IPv6 (::ffff:a.b.c.d).
using Address = std::array<std::uint8_t, 16>;

struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = UINT16_MAX;

    bool contains(std::uint16_t port) const { return port >= first && port <= last; }
    bool is_all() const { return first == 0 && last == UINT16_MAX; }

    friend bool operator==(const PortRange&, const PortRange&) = default;
};

/// The first LENGTH bits of ADDRESS.
struct Prefix {
    Address address{};
    std::size_t length = 0;  // 0: all there are; 96 more than is written for IPv4

    bool contains(const Address& other) const;
    Address mask() const;

    friend bool operator==(const Prefix&, const Prefix&) = default;
};

struct Endpoint {
    Address address{};
    std::uint16_t port = 0;
};

/// "5201" or "5201-5210", of 1 to 65535.
Result<PortRange> parse_ports(std::string_view text);

/// "10.0.0.0/8", "fd00::/8", or an address alone. Bits behind the prefix must be 0.
Result<Prefix> parse_prefix(std::string_view text);

/// Of a socket address of IPv4 or IPv6.
Endpoint endpoint_of(const sockaddr_storage& address);

/// "10.0.0.1:80", "[fd00::1]:80".
std::string to_string(const Endpoint& endpoint);

}  // namespace mercury
