// SPDX-License-Identifier: MIT
#include "marking/marking.hpp"

#include <catch2/catch.hpp>

using namespace mercury;

TEST_CASE("DSCP by name and number", "[settings]") {
    CHECK(parse_dscp("CS0").value() == 0);
    CHECK(parse_dscp("CS7").value() == 56);
    CHECK(parse_dscp("AF11").value() == 10);
    CHECK(parse_dscp("AF43").value() == 38);
    CHECK(parse_dscp("63").value() == 63);
    for (const char* const wrong : {"", "CS8", "AF14", "AF01", "af11", "-1", "1 ", "0x10"})
        CHECK_FALSE(parse_dscp(wrong));
}
