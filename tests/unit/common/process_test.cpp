// SPDX-License-Identifier: MIT
#include "common/process.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using Catch::Matchers::Contains;

TEST_CASE("a command's output is returned", "[process]") {
    const auto output = run_command({"sh", "-c", "echo out; echo err >&2"});
    REQUIRE(output);
    CHECK(output.value() == "out\n");
}

TEST_CASE("more output than a pipe holds is no problem", "[process]") {
    const auto output = run_command({"head", "-c", "300000", "/dev/zero"});
    REQUIRE(output);
    CHECK(output.value().size() == 300'000);
}

TEST_CASE("a failed command is quoted with what it said", "[process]") {
    const auto output = run_command({"sh", "-c", "echo it broke >&2; exit 3"});
    REQUIRE_FALSE(output);
    CHECK_THAT(output.error().message, Contains("sh -c"));
    CHECK_THAT(output.error().message, Contains("exit status 3"));
    CHECK_THAT(output.error().message, Contains("it broke"));
}

TEST_CASE("a killed command is reported with the signal", "[process]") {
    const auto output = run_command({"sh", "-c", "kill -9 $$"});
    REQUIRE_FALSE(output);
    CHECK_THAT(output.error().message, Contains("signal 9"));
}

TEST_CASE("a missing program is reported with its name", "[process]") {
    const auto output = run_command({"no-such-program-of-mercury"});
    REQUIRE_FALSE(output);
    CHECK_THAT(output.error().message, Contains("no-such-program-of-mercury"));
    CHECK_THAT(output.error().message, Contains("No such file"));
}
