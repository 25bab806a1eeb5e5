// SPDX-License-Identifier: MIT
#include "cli/text.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::cli;
using namespace std::chrono_literals;

TEST_CASE("figures have three digits and never a unit too small") {
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(999) == "999 B");
    CHECK(bytes_text(1024) == "1 KiB");
    CHECK(bytes_text(1300) == "1.27 KiB");
    CHECK(bytes_text(1023 << 10) == "1.00 MiB");
    CHECK(bytes_text(std::uint64_t{830} << 20) == "830 MiB");
    CHECK(rate_text(1'196'250'000, 1s) == "9.57 Gbit/s");
    CHECK(rate_text(125, 100ms) == "10 Kbit/s");
    CHECK(rate_text(125, 0s) == "0 bit/s");
    CHECK(time_text(netlink::Time{131072}) == "131us");
    CHECK(time_text(netlink::Time{1024}) == "1.02us");
    CHECK(frequency_text(120'000, 1s) == "120k");
    CHECK(frequency_text(1, 4s) == "0.25");
}

TEST_CASE("a percentile is the bound of its bucket, and says so") {
    const std::vector<std::uint64_t> packets{0, 90, 0, 9, 1};
    CHECK(quantile_text(packets, 0.50) == "<2.05us");
    CHECK(quantile_text(packets, 0.99) == "<8.19us");
    CHECK(quantile_text(packets, 1) == ">=8.19us");
    CHECK(quantile_text({}, 0.50) == "-");
}

TEST_CASE("tables: words flush left, figures flush right, nothing behind the last") {
    CHECK(table({{"NAME", "N", "M"}, {"a", "10", "1"}, {"bcdef"}}, 1) ==
          "NAME    N  M\n"
          "a      10  1\n"
          "bcdef\n");
    CHECK(table({{"N", "NAME"}, {"10", "a"}, {"1", "bcdef"}}, 0, 1) ==
          " N  NAME\n"
          "10  a\n"
          " 1  bcdef\n");
}
