// SPDX-License-Identifier: MIT
#include "netlink/histogram.hpp"

#include <vector>

#include <catch2/catch.hpp>

using namespace mercury::netlink;

TEST_CASE("the bounds of buckets; the last one has none") {
    const std::vector<std::uint64_t> three{1, 1, 1};
    CHECK(upper_bound(three, 0) == Time{1024});
    CHECK(upper_bound(three, 1) == Time{2048});
    CHECK_FALSE(upper_bound(three, 2));
    CHECK(lower_bound(0) == Time{0});
    CHECK(lower_bound(2) == Time{2048});
}

TEST_CASE("a quantile is the bucket in which it is reached") {
    const std::vector<std::uint64_t> half{0, 50, 0, 49, 1, 0};
    CHECK(quantile(half, 0) == 1U);
    CHECK(quantile(half, 0.5) == 1U);
    CHECK(quantile(half, 0.51) == 3U);
    CHECK(quantile(half, 0.99) == 3U);
    CHECK(quantile(half, 1) == 4U);
    CHECK(total(half) == 100);
}

TEST_CASE("without packets there is no quantile") {
    CHECK_FALSE(quantile({}, 0.5));
    const std::vector<std::uint64_t> none(24);
    CHECK_FALSE(quantile(none, 0.5));
}

TEST_CASE("more buckets than fit 64 bits") {
    std::vector<std::uint64_t> many(200);
    many.back() = 1;
    CHECK(upper_bound(many, 53) == Time{std::uint64_t{1} << 63});
    CHECK_FALSE(upper_bound(many, 54));
    CHECK(lower_bound(54) == Time{std::uint64_t{1} << 63});
    CHECK(lower_bound(199) == Time::max());
    CHECK(quantile(many, 0.5) == 199U);
}
