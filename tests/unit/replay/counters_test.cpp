// SPDX-License-Identifier: MIT
#include "replay/counters.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::replay;
using Catch::Matchers::Contains;

namespace {

constexpr const char* snmp =
    "Ip: Forwarding DefaultTTL\n"
    "Ip: 1 64\n"
    "Tcp: RtoAlgorithm RtoMin RetransSegs InErrs\n"
    "Tcp: 1 200 1234 5\n";

constexpr const char* dev =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop "
    "fifo colls carrier compressed\n"
    "    lo:     100       1    0    0    0     0          0         0      100       1    0    0 "
    "   0     0       0          0\n"
    "  eth0:18446744073709551615 20 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n";

}  // namespace

TEST_CASE("a counter is found by group and name", "[counters]") {
    const auto value = proc_net_value(snmp, "Tcp", "RetransSegs");
    REQUIRE(value);
    CHECK(value.value() == 1234);
    CHECK(proc_net_value(snmp, "Ip", "DefaultTTL").value() == 64);
}

TEST_CASE("a counter that is not there is an error", "[counters]") {
    for (const auto& [group, name] : {std::pair{"Tcp", "Nothing"}, {"Udp", "RetransSegs"}}) {
        const auto value = proc_net_value(snmp, group, name);
        REQUIRE_FALSE(value);
        CHECK_THAT(value.error().message, Contains(group) && Contains(name));
    }
    CHECK_FALSE(proc_net_value("Tcp: A\n", "Tcp", "A"));
    CHECK_FALSE(proc_net_value("Tcp: A B\nTcp: 1\n", "Tcp", "B"));
    CHECK_FALSE(proc_net_value("Tcp: A\nTcp: -1\n", "Tcp", "A"));
}

TEST_CASE("the link's bytes in both directions", "[counters]") {
    const auto bytes = parse_link_bytes(dev);
    REQUIRE(bytes);
    CHECK(bytes.value().received == 18446744073709551615U);
    CHECK(bytes.value().sent == 7);
    CHECK_FALSE(parse_link_bytes("lo: 1 2 3 4 5 6 7 8 9 10\n"));
}
