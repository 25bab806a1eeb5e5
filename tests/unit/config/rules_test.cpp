// SPDX-License-Identifier: MIT
#include "config/rules.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using Catch::Matchers::Contains;

namespace {

struct Read {
    std::vector<Rule> rules;
    std::string problems;
};

Read read(const std::string& text) {
    const auto table = parse_toml(text, "m.toml");
    INFO((table ? "" : table.error().message));
    REQUIRE(table);
    Problems problems("m.toml");
    SettingReader reader(table.value(), "", 1, problems);
    Read result{read_rules(reader), ""};
    if (auto outcome = problems.outcome(); !outcome)
        result.problems = outcome.error().message;
    return result;
}

/// What is wrong with a rule that has this line.
std::string problem_of(const std::string& line) {
    return read("[[rule]]\nname = \"a\"\nband = 1\n" + line + "\n").problems;
}

}  // namespace

TEST_CASE("a rule with everything", "[rules]") {
    const auto [rules, problems] = read(R"(
        [[rule]]
        name = "backup"
        user = 1000
        cgroup = "/system.slice/backup.service/"
        command = "rsync"
        local_port = 873
        remote_port = "8000-8010"
        remote = "10.1.0.0/16"
        job = 3
        band = 5
        dscp = "CS1"
        priority = 2
    )");
    CHECK(problems.empty());
    REQUIRE(rules.size() == 1);
    const Rule& rule = rules[0];
    CHECK(rule.name == "backup");
    CHECK(rule.user == 1000);
    CHECK(rule.cgroup == "/system.slice/backup.service");
    CHECK(rule.command == "rsync");
    CHECK(rule.local_port == PortRange{873, 873});
    CHECK(rule.remote_port == PortRange{8000, 8010});
    CHECK(rule.remote == parse_prefix("10.1.0.0/16").value());
    CHECK(rule.marking == Marking{0x30006, 2, 8, {}});
}

TEST_CASE("what is not said of a rule", "[rules]") {
    const auto [rules, problems] = read("[[rule]]\nname = \"a\"\nuser = \"root\"\nband = 9\n");
    CHECK(problems.empty());
    REQUIRE(rules.size() == 1);
    CHECK(rules[0].user == 0);
    CHECK(rules[0].local_port.is_all());
    CHECK(rules[0].remote_port.is_all());
    CHECK(rules[0].remote == Prefix{});
    // The priority is that of a class, of which there are six.
    CHECK(rules[0].marking == Marking{10, 6, {}, {}});
}

TEST_CASE("what is wrong with a rule", "[rules]") {
    CHECK_THAT(problem_of(""), Contains("m.toml:1: rule: has no condition"));
    CHECK_THAT(problem_of("user = \"no one has this name\""), Contains("m.toml:4: rule.user"));
    CHECK_THAT(problem_of("user = -1"), Contains("rule.user: must be 0 to 4294967294, not -1"));
    CHECK_THAT(problem_of("user = 1.5"), Contains("rule.user"));
    for (const char* const path : {"", "a", "/", "//", "/a//b", "/a/../b", "/a/.", "/.."}) {
        INFO(path);
        CHECK_THAT(problem_of("cgroup = \"" + std::string(path) + "\""),
                   Contains("rule.cgroup: must be a path from the root"));
    }
    CHECK_THAT(problem_of("cgroup = \"/1/2/3/4/5/6/7/8/9\""), Contains("at most 8 deep"));
    CHECK(problem_of("cgroup = \"/1/2/3/4/5/6/7/8\"").empty());
    CHECK_THAT(problem_of("command = \"\""), Contains("1 to 15 bytes"));
    CHECK_THAT(problem_of("command = \"sixteen-letters-\""), Contains("1 to 15 bytes"));
    CHECK_THAT(problem_of("local_port = 0"), Contains("rule.local_port: \"0\""));
    CHECK_THAT(problem_of("remote_port = 65536"), Contains("rule.remote_port"));
    CHECK_THAT(problem_of("remote = \"10.0.0.1/8\""), Contains("bits behind its length"));
    CHECK_THAT(problem_of("user = 0\njob = 62"), Contains("rule.job: must be 0 to 61"));
    CHECK_THAT(problem_of("user = 0\npriority = 7"), Contains("rule.priority: must be 0 to 6"));
    CHECK_THAT(problem_of("user = 0\ndscp = \"AF99\""), Contains("rule.dscp"));
    CHECK_THAT(problem_of("user = 0\nport = 1"), Contains("rule.port: there is no such setting"));
    CHECK_THAT(read("[[rule]]\nuser = 0\n").problems,
               Contains("rule.name: is missing") && Contains("rule.band: is missing"));
    CHECK_THAT(read("[[rule]]\nname = \"\"\nuser = 0\nband = 1\n").problems, Contains("rule.name"));
    CHECK_THAT(read("[rule]\n").problems, Contains("must be a list of tables, [[rule]]"));
}

TEST_CASE("names are said once, and there are 16 rules at most", "[rules]") {
    std::string text;
    for (int i = 0; i < 16; ++i)
        text += "[[rule]]\nuser = 0\nband = 1\nname = \"" + std::to_string(i) + "\"\n";
    CHECK(read(text).problems.empty());
    CHECK_THAT(read(text + "[[rule]]\nuser = 0\nband = 1\nname = \"7\"\n").problems,
               Contains("rule.name: \"7\" is here twice") && Contains("there may be 16 at most"));
}
