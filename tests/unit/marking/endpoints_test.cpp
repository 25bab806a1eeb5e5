// SPDX-License-Identifier: MIT
#include "marking/endpoints.hpp"

#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>

using namespace mercury;

namespace {

Endpoint endpoint(const char* text, std::uint16_t port = 0) {
    sockaddr_storage storage{};
    sockaddr_in ipv4{};
    sockaddr_in6 ipv6{};
    if (inet_pton(AF_INET, text, &ipv4.sin_addr) == 1) {
        ipv4.sin_family = AF_INET;
        ipv4.sin_port = htons(port);
        std::memcpy(&storage, &ipv4, sizeof(ipv4));
    } else {
        REQUIRE(inet_pton(AF_INET6, text, &ipv6.sin6_addr) == 1);
        ipv6.sin6_family = AF_INET6;
        ipv6.sin6_port = htons(port);
        std::memcpy(&storage, &ipv6, sizeof(ipv6));
    }
    return endpoint_of(storage);
}

bool contains(const char* prefix, const char* address) {
    const auto parsed = parse_prefix(prefix);
    INFO(prefix);
    REQUIRE(parsed);
    return parsed.value().contains(endpoint(address).address);
}

}  // namespace

TEST_CASE("ports", "[endpoints]") {
    CHECK(parse_ports("1").value() == PortRange{1, 1});
    CHECK(parse_ports("5201-5210").value() == PortRange{5201, 5210});
    CHECK(parse_ports("1-65535").value() == PortRange{1, 65535});
    for (const char* const wrong :
         {"", "0", "65536", "2-1", "1-", "-1", "1-2-3", "0-5", "http", "1 ", "0x10"})
        CHECK_FALSE(parse_ports(wrong));
    CHECK(PortRange{}.is_all());
    CHECK(PortRange{2, 4}.contains(2));
    CHECK(PortRange{2, 4}.contains(4));
    CHECK_FALSE(PortRange{2, 4}.contains(1));
    CHECK_FALSE(PortRange{2, 4}.contains(5));
}

TEST_CASE("a prefix contains what begins with it", "[endpoints]") {
    CHECK(contains("10.0.0.0/8", "10.255.0.1"));
    CHECK_FALSE(contains("10.0.0.0/8", "11.0.0.1"));
    CHECK(contains("10.0.0.2", "10.0.0.2"));
    CHECK_FALSE(contains("10.0.0.2", "10.0.0.3"));
    CHECK(contains("10.0.0.128/25", "10.0.0.129"));
    CHECK_FALSE(contains("10.0.0.128/25", "10.0.0.127"));
    CHECK(contains("fd00::/8", "fd12::1"));
    CHECK_FALSE(contains("fd00::/8", "fe80::1"));
    CHECK(contains("fd00::1", "fd00::1"));
}

TEST_CASE("IPv4 is a part of IPv6", "[endpoints]") {
    CHECK(contains("0.0.0.0/0", "1.2.3.4"));
    CHECK_FALSE(contains("0.0.0.0/0", "fd00::1"));
    CHECK(contains("10.0.0.0/8", "::ffff:10.0.0.1"));
    CHECK(contains("::/0", "1.2.3.4"));
    CHECK(contains("::/0", "fd00::1"));
}

TEST_CASE("what is no prefix", "[endpoints]") {
    for (const char* const wrong :
         {"", "10.0.0.0/33", "10.0.0.1/8", "fd00::/129", "fd00::1/64", "10.0.0.0/", "/8", "host",
          "10.0.0.0/8/8", "10.0.0", "10.0.0.0/-1"})
        CHECK_FALSE(parse_prefix(wrong));
}

TEST_CASE("endpoints as text", "[endpoints]") {
    CHECK(to_string(endpoint("10.0.0.1", 80)) == "10.0.0.1:80");
    CHECK(to_string(endpoint("fd00::1", 65535)) == "[fd00::1]:65535");
    CHECK(to_string(endpoint("::ffff:10.0.0.1", 1)) == "10.0.0.1:1");
}
