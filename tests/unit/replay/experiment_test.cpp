// SPDX-License-Identifier: MIT
#include "replay/experiment.hpp"

#include <catch2/catch.hpp>

using namespace mercury::replay;
using Catch::Matchers::Contains;

TEST_CASE("arms are chosen by name, in the order given", "[experiment]") {
    const auto arms = parse_arms("mercury,fifo");
    REQUIRE(arms);
    REQUIRE(arms.value().size() == 2);
    CHECK(arms.value()[0]->name == "mercury");
    CHECK(arms.value()[1]->name == "fifo");
    CHECK(arms.value()[1]->one_class);
}

TEST_CASE("pfifo, fq and mercury differ in the qdisc alone", "[experiment]") {
    const auto arms = parse_arms("pfifo,fq,mercury");
    REQUIRE(arms);
    for (const Arm* arm : arms.value()) {
        CHECK_FALSE(arm->one_class);
        CHECK(arm->answer == Answer::at_once);
    }
}

TEST_CASE("fifo and overlap differ in when the server answers alone", "[experiment]") {
    const auto arms = parse_arms("fifo,overlap");
    REQUIRE(arms);
    const Arm& fifo = *arms.value()[0];
    const Arm& overlap = *arms.value()[1];
    CHECK(fifo.answer == Answer::whole_layers);
    CHECK(overlap.answer == Answer::at_once);
    CHECK((fifo.one_class && overlap.one_class));
    CHECK(fifo.qdisc == overlap.qdisc);
}

TEST_CASE("an unknown, empty or repeated arm is refused", "[experiment]") {
    const auto [names, complaint] = GENERATE(table<const char*, const char*>({
        {"fifo,lifo", "\"lifo\" is none of fifo, overlap, pfifo, fq, mercury"},
        {"", "\"\" is none of"},
        {"fifo,", "\"\" is none of"},
        {",fifo", "\"\" is none of"},
        {"fifo,fifo", "\"fifo\" is given twice"},
    }));
    INFO(names);
    const auto arms = parse_arms(names);
    REQUIRE_FALSE(arms);
    CHECK_THAT(arms.error().message, Contains(complaint));
}
