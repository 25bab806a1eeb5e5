// SPDX-License-Identifier: MIT
#include "transport/element.hpp"

#include <string>

#include <catch2/catch.hpp>

using namespace mercury::transport;
using Catch::Matchers::Contains;

TEST_CASE("types, reductions and orders are read as they are written", "[element]") {
    for (const auto type : {ElementType::f32, ElementType::f16, ElementType::bf16}) {
        REQUIRE(parse_element_type(to_string(type)));
        CHECK(parse_element_type(to_string(type)).value() == type);
    }
    for (const auto reduction : {Reduction::sum, Reduction::mean}) {
        REQUIRE(parse_reduction(to_string(reduction)));
        CHECK(parse_reduction(to_string(reduction)).value() == reduction);
    }
    for (const auto order : {SumOrder::arrival, SumOrder::rank}) {
        REQUIRE(parse_sum_order(to_string(order)));
        CHECK(parse_sum_order(to_string(order)).value() == order);
    }
    CHECK(to_string(ElementType::bf16) == "bf16");
    CHECK(to_string(Reduction::mean) == "mean");
    CHECK(to_string(SumOrder::rank) == "rank");
}

TEST_CASE("what is none of them is refused with its text and what is allowed", "[element]") {
    const std::string text = GENERATE("", "f64", "F32", "f32 ", "0");
    const std::string quoted = "\"" + text + "\"";
    const auto type = parse_element_type(text);
    REQUIRE_FALSE(type);
    CHECK_THAT(type.error().message, Contains(quoted) && Contains("f32, f16, bf16"));
    const auto reduction = parse_reduction(text);
    REQUIRE_FALSE(reduction);
    CHECK_THAT(reduction.error().message, Contains(quoted) && Contains("sum, mean"));
    const auto order = parse_sum_order(text);
    REQUIRE_FALSE(order);
    CHECK_THAT(order.error().message, Contains(quoted) && Contains("arrival, rank"));
}

TEST_CASE("elements have the size that they have on the wire", "[element]") {
    CHECK(size_of(ElementType::f32) == 4);
    CHECK(size_of(ElementType::f16) == 2);
    CHECK(size_of(ElementType::bf16) == 2);
}
