// SPDX-License-Identifier: MIT
#include "marking/endpoints.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <fmt/format.h>

#include "common/runs.hpp"

namespace mercury {
namespace {

constexpr std::size_t mapped_bits = 96;
constexpr std::size_t address_bits = 128;

Address map_ipv4(const in_addr& ipv4) {
    Address address{};
    address[10] = address[11] = 0xff;
    std::memcpy(&address[12], &ipv4, sizeof(ipv4));
    return address;
}

bool is_ipv4(const Address& address) {
    const Address mapped = map_ipv4({});
    return std::equal(address.begin(), address.begin() + mapped_bits / 8, mapped.begin());
}

}  // namespace

Address Prefix::mask() const {
    Address mask{};
    for (std::size_t bit = 0; bit < length; ++bit)
        mask[bit / 8] = static_cast<std::uint8_t>(mask[bit / 8] | 0x80U >> bit % 8);
    return mask;
}

bool Prefix::contains(const Address& other) const {
    const Address relevant = mask();
    for (std::size_t i = 0; i < other.size(); ++i) {
        if (((address[i] ^ other[i]) & relevant[i]) != 0)
            return false;
    }
    return true;
}

Result<PortRange> parse_ports(std::string_view text) {
    const auto run = parse_run(text);
    if (!run || run->first == 0) {
        return Error{fmt::format(
            "\"{}\" is no PORT or FIRST-LAST of 1 to 65535, such as \"5201-5210\"", text)};
    }
    return PortRange{run->first, run->second};
}

Result<Prefix> parse_prefix(std::string_view text) {
    const Error wrong{
        fmt::format("\"{}\" is no ADDRESS or ADDRESS/LENGTH, such as \"10.0.0.0/8\"", text)};
    const auto slash = text.find('/');
    const std::string address(text.substr(0, slash));
    Prefix prefix;
    in_addr ipv4{};
    std::size_t offset = 0;
    if (inet_pton(AF_INET, address.c_str(), &ipv4) == 1) {
        prefix.address = map_ipv4(ipv4);
        offset = mapped_bits;
    } else if (inet_pton(AF_INET6, address.c_str(), prefix.address.data()) != 1) {
        return wrong;
    }
    prefix.length = address_bits;
    if (slash != std::string_view::npos) {
        const auto length = parse_number(text.substr(slash + 1));
        if (!length || *length + offset > address_bits)
            return wrong;
        prefix.length = *length + offset;
    }
    const Address mask = prefix.mask();
    for (std::size_t i = 0; i < mask.size(); ++i) {
        if ((prefix.address[i] & ~mask[i]) != 0)
            return Error{fmt::format("\"{}\" has bits behind its length", text)};
    }
    return prefix;
}

Endpoint endpoint_of(const sockaddr_storage& address) {
    Endpoint endpoint;
    if (address.ss_family == AF_INET) {
        sockaddr_in ipv4{};
        std::memcpy(&ipv4, &address, sizeof(ipv4));
        endpoint.address = map_ipv4(ipv4.sin_addr);
        endpoint.port = ntohs(ipv4.sin_port);
    } else {
        sockaddr_in6 ipv6{};
        std::memcpy(&ipv6, &address, sizeof(ipv6));
        std::memcpy(endpoint.address.data(), &ipv6.sin6_addr, sizeof(ipv6.sin6_addr));
        endpoint.port = ntohs(ipv6.sin6_port);
    }
    return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (is_ipv4(endpoint.address)) {
        inet_ntop(AF_INET, &endpoint.address[12], text.data(), text.size());
        return fmt::format("{}:{}", text.data(), endpoint.port);
    }
    inet_ntop(AF_INET6, endpoint.address.data(), text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), endpoint.port);
}

}  // namespace mercury
