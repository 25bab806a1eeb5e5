// SPDX-License-Identifier: MIT
#include "daemon/settings.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::daemon;
using Catch::Matchers::Contains;

namespace {

std::string problem(const std::string& text) {
    const auto settings = parse_settings(text, "test.toml");
    INFO(text);
    REQUIRE_FALSE(settings);
    return settings.error().message;
}

}  // namespace

TEST_CASE("an empty file is the defaults", "[settings]") {
    const auto settings = parse_settings("", "test.toml");
    REQUIRE(settings);
    CHECK(settings.value().socket == hints::default_socket);
    CHECK(settings.value().jobs == 16);
    CHECK(settings.value().dscp.empty());
    CHECK(settings.value().limits.clients == 256);
    CHECK(settings.value().metrics.port == 0);
    CHECK(settings.value().metrics.address == "127.0.0.1");
    CHECK(settings.value().devices.empty());
}

TEST_CASE("everything can be set", "[settings]") {
    const auto settings = parse_settings(R"(
        [hints]
        socket = "/run/elsewhere.sock"
        jobs = 62
        dscp = ["AF41", "CS2", "8", "EF"]
        [limits]
        clients = 1
        jobs = 2
        layers = 3
        sockets = 4
        messages = 5
        [metrics]
        port = 9468
        address = "::1"
        job_names = true
        [[device]]
        name = "eth0"
        rate = "9.7gbit"
        [[rule]]
        name = "backup"
        remote_port = 873
        band = 5
    )",
                                         "test.toml");
    INFO((settings ? "" : settings.error().message));
    REQUIRE(settings);
    const Settings& given = settings.value();
    CHECK(given.socket == "/run/elsewhere.sock");
    CHECK(given.jobs == 62);
    CHECK(given.dscp == DscpOfClass{34, 16, 8, 46});
    CHECK(given.limits.clients == 1);
    CHECK(given.limits.jobs == 2);
    CHECK(given.limits.layers == 3);
    CHECK(given.limits.sockets == 4);
    CHECK(given.limits.messages == 5);
    CHECK(given.metrics == MetricsSettings{"::1", 9468, true});
    REQUIRE(given.devices.size() == 1);
    CHECK(given.devices[0].name == "eth0");
    REQUIRE(given.rules.size() == 1);
    CHECK(given.rules[0].name == "backup");
}

TEST_CASE("what is wrong is said with its line", "[settings]") {
    CHECK_THAT(problem("[hints"), Contains("test.toml:1"));
    CHECK_THAT(problem("[hints]\nport = 1\n"), Contains("test.toml:2") && Contains("hints.port"));
    CHECK_THAT(problem("[hint]\n"), Contains("hint"));
    CHECK_THAT(problem("[hints]\njobs = 1\n"), Contains("must be 2 to 62, not 1"));
    CHECK_THAT(problem("[hints]\njobs = \"many\"\n"), Contains("hints.jobs"));
    CHECK_THAT(problem("[hints]\ndscp = [\"AF51\"]\n"), Contains("AF51"));
    CHECK_THAT(problem("[hints]\ndscp = [\"64\"]\n"), Contains("0 to 63"));
    CHECK_THAT(problem("[hints]\nsocket = \"\"\n"), Contains("hints.socket"));
    CHECK_THAT(problem("[hints]\nsocket = \"/" + std::string(120, 'x') + "\"\n"),
               Contains("too long"));
    CHECK_THAT(problem("[limits]\nsockets = 0\n"), Contains("limits.sockets"));
    CHECK_THAT(problem("[[device]]\nname = \"eth0\"\nbands = 1\n"), Contains("bands"));
    CHECK_THAT(problem("[[rule]]\nname = \"a\"\nuser = 0\n"), Contains("test.toml:1: rule.band"));
}

TEST_CASE("all problems are found at once", "[settings]") {
    const auto all = problem("[hints]\njobs = 0\n[limits]\nclients = 0\n");
    CHECK_THAT(all, Contains("test.toml:2") && Contains("test.toml:4"));
}

TEST_CASE("a file that is not there is said so", "[settings]") {
    const auto settings = load_settings("/nowhere/mercuryd.toml");
    REQUIRE_FALSE(settings);
    CHECK_THAT(settings.error().message, Contains("No such file"));
}

TEST_CASE("metrics have a port and an address", "[settings]") {
    CHECK_THAT(problem("[metrics]\nport = 0\n"), Contains("metrics.port: must be 1 to 65535"));
    CHECK_THAT(problem("[metrics]\nport = 1\naddress = \"localhost\"\n"),
               Contains("test.toml:3: metrics.address: must be an address"));
    CHECK_THAT(problem("[metrics]\nport = 1\njob_names = 1\n"),
               Contains("metrics.job_names: must be true or false, not a whole number"));
    CHECK_THAT(problem("[metrics]\naddress = \"::1\"\n"), Contains("metrics.port: is missing"));
}
