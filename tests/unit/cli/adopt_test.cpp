// SPDX-License-Identifier: MIT
#include "cli/adopt.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::cli;

TEST_CASE("bands", "[adopt]") {
    CHECK(parse_bands("0").value() == BandRange{0, 0});
    CHECK(parse_bands("2-5").value() == BandRange{2, 5});
    CHECK(parse_bands("1023").value() == BandRange{1023, 1023});
    for (const char* const wrong :
         {"", "-", "1-", "-1", "5-2", "1024", "0-1024", "a", "1 ", "1-2-3"})
        CHECK_FALSE(parse_bands(wrong));
}

TEST_CASE("connections are spread over bands in equal runs", "[adopt]") {
    const BandRange bands{1, 3};
    std::vector<std::size_t> of_six;
    for (std::size_t i = 0; i < 6; ++i)
        of_six.push_back(bands.of(i, 6));
    CHECK(of_six == std::vector<std::size_t>{1, 1, 2, 2, 3, 3});
    CHECK(bands.of(0, 1) == 1);
    CHECK(bands.of(1, 2) == 2);
    CHECK((BandRange{4, 4}.of(5, 6) == 4));
}
