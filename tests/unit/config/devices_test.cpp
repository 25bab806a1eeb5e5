// SPDX-License-Identifier: MIT
#include "config/devices.hpp"

#include <catch2/catch.hpp>

#include "netlink/options.hpp"

using namespace mercury;
using netlink::Deadline;
using netlink::Option;
using netlink::Time;

namespace {

struct Read {
    std::vector<DeviceSettings> devices;
    std::string problems;
};

Read read(std::string_view text) {
    const auto table = parse_toml(text, "m.toml");
    INFO((table ? "" : table.error().message));
    REQUIRE(table);
    Problems problems("m.toml");
    SettingReader reader(table.value(), "", 1, problems);
    Read result{read_devices(reader), ""};
    if (auto outcome = problems.outcome(); !outcome)
        result.problems = outcome.error().message;
    return result;
}

/// What is wrong with a device that has this line.
std::string problem_of(const std::string& line) {
    return read("[[device]]\nname = \"eth0\"\n" + line + "\n").problems;
}

}  // namespace

TEST_CASE("a device with nothing but a name has the module's defaults") {
    const auto [devices, problems] = read("[[device]]\nname = \"eth0\"");
    CHECK(problems.empty());
    REQUIRE(devices.size() == 1);
    netlink::for_each_option(devices[0].options, [](const Option& option, const auto& field) {
        INFO(option.name);
        REQUIRE(field);
        CHECK(netlink::number_of(*field) == option.unset);
    });
    CHECK_FALSE(devices[0].options.deadlines);
}

TEST_CASE("every option by its name in tc") {
    const auto [devices, problems] = read(R"(
        [[device]]
        name = "eth0"
        jobs = 3
        bands = 8
        limit = 77
        memory_limit = "3mb"
        key = "dscp"
        mask = 0x7
        job_mask = 0x38
        default_share = 33
        rescue = 0
        rate = "9.7gbit"
        split_gso = "on"
        ack_first = false
        ce_threshold = "1.5ms"
        deadlines = ["0:3-5 2ms", "7 none"]
        [[device]]
        name = "eth1"
        rate = "none"
        memory_limit = 2097152
        ce_threshold = "none"
        deadlines = []
    )");
    CHECK(problems.empty());
    REQUIRE(devices.size() == 2);
    netlink::MercuryOptions first;
    first.jobs = 3;
    first.bands = 8;
    first.limit = 77;
    first.memory_limit = 3U << 20;
    first.key = MERCURY_KEY_DSCP;
    first.mask = 7;
    first.job_mask = 0x38;
    first.default_share = 33;
    first.rescue = 0;
    first.rate = 1'212'500'000;
    first.split_gso = MERCURY_SPLIT_ON;
    first.ack_first = 0;
    first.ce_threshold = Time{1'500'000};
    first.deadlines = {{0, 3, 5, Time{2'000'000}}, {{}, 7, 7, netlink::no_time}};
    CHECK(devices[0].options == first);
    CHECK(devices[1].options.rate == 0U);
    CHECK(devices[1].options.memory_limit == 2097152U);
    CHECK(devices[1].options.ce_threshold == netlink::no_time);
    CHECK(devices[1].options.deadlines == std::vector<Deadline>{});
}

TEST_CASE("what is wrong is named with its line and what is allowed") {
    const auto [line, problem] = GENERATE(table<std::string, std::string>({
        {"jobs = 63", "m.toml:3: device.jobs: must be 1 to 62"},
        {"jobs = \"3\"", "m.toml:3: device.jobs: must be 1 to 62"},
        {"bands = 1", "m.toml:3: device.bands: must be 2 to 1024"},
        {"limit = -1", "m.toml:3: device.limit: must be 1 to 2147483647"},
        {"memory_limit = \"3 apples\"", "m.toml:3: device.memory_limit: must be 1mb to 4294967295"},
        {"key = \"colour\"", "m.toml:3: device.key: must be one of mark, priority, dscp"},
        {"mask = 0x5", "m.toml:3: device.mask: must be one run of at most 16 bits"},
        {"mask = 0", "m.toml:3: device.mask: must be one run of at most 16 bits"},
        {"job_mask = 0x1ff0000",
         "m.toml:3: device.job_mask: must be one run of at most 8 bits, or 0"},
        {"job_mask = 0xff", "m.toml:3: device.job_mask: must not overlap mask"},
        {"default_share = 100", "m.toml:3: device.default_share: must be 1% to 99%"},
        {"rate = 1000", "m.toml:3: device.rate: must be 1kbit to 10000gbit, or none"},
        {"rate = \"fast\"", "m.toml:3: device.rate: must be 1kbit to 10000gbit, or none"},
        {"split_gso = true", "m.toml:3: device.split_gso: must be one of off, on, auto"},
        {"ack_first = 1", "m.toml:3: device.ack_first: must be true or false"},
        {"ce_threshold = \"1ns\"", "m.toml:3: device.ce_threshold: must be 1us to 3600s, or none"},
        {"deadlines = [\"0:70 1ms\"]",
         "m.toml:3: device.deadlines: band 70: there are bands 0 to 63"},
        {"deadlines = [\"16:0 1ms\"]",
         "m.toml:3: device.deadlines: job 16: there are jobs 0 to 15"},
    }));
    INFO(line);
    CHECK(problem_of(line) == problem);
}

TEST_CASE("unknown settings, missing and double names") {
    CHECK_THAT(problem_of("jbos = 3"),
               Catch::Contains("device.jbos: there is no such setting here"));
    CHECK_THAT(read("[[device]]\njobs = 3").problems, Catch::Contains("device.name: is missing"));
    CHECK_THAT(read("[[device]]\nname = \"a\"\n[[device]]\nname = \"a\"").problems,
               Catch::Contains("\"a\" is here twice"));
    CHECK_THAT(read("[device]\nname = \"a\"").problems,
               Catch::Contains("must be a list of tables, [[device]]"));
    CHECK_THAT(read("device = [1]").problems, Catch::Contains("must be tables"));
}

TEST_CASE("a file without devices, or none at all, is an error") {
    CHECK_FALSE(load_devices("/nonexistent.toml"));
}

TEST_CASE("deadlines as tc writes them, both ways") {
    for (const std::string text : {"0:3-5 2ms", "7 none", "0-63 1us", "61:1023 3600s"}) {
        const auto deadline = parse_deadline(text);
        REQUIRE(deadline);
        CHECK(to_text(deadline.value()) == text);
    }
    for (const std::string text :
         {"", "3", "3 ", "x 1ms", "3-2 1ms", "3- 1ms", ":3 1ms", "1:2:3 1ms", "70000 1ms",
          "65535:1 1ms", "3 0us", "3 soon", "-1 1ms"}) {
        INFO(text);
        CHECK_FALSE(parse_deadline(text));
    }
}
