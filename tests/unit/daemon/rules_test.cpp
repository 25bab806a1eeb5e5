// SPDX-License-Identifier: MIT
#include "daemon/rules.hpp"

#include <cstring>

#include <catch2/catch.hpp>

#include "bpf/conversion.hpp"

using namespace mercury;
using namespace mercury::daemon;

namespace {

/// What would be in the kernel.
struct Kernel {
    std::vector<std::vector<Rule>> loaded;
    std::vector<bpf::RuleCount> counts;
    bool refuses = false;
    int alive = 0;
};

class FakePrograms : public bpf::RulePrograms {
  public:
    FakePrograms(Kernel& kernel, std::size_t rules) : kernel_(kernel), rules_(rules) {
        ++kernel_.alive;
    }
    ~FakePrograms() override { --kernel_.alive; }
    FakePrograms(const FakePrograms&) = delete;
    FakePrograms& operator=(const FakePrograms&) = delete;

    bool find_cgroups() override { return false; }
    std::vector<bpf::RuleCount> counts() const override {
        auto counts = kernel_.counts;
        counts.resize(rules_);
        return counts;
    }

  private:
    Kernel& kernel_;
    std::size_t rules_;
};

Rules::Load into(Kernel& kernel) {
    return [&kernel](
               const std::vector<Rule>& rules,
               const bpf::RulePrograms* /*before*/) -> Result<std::unique_ptr<bpf::RulePrograms>> {
        if (kernel.refuses)
            return Error{"no"};
        kernel.loaded.push_back(rules);
        auto programs = std::make_unique<FakePrograms>(kernel, rules.size());
        return std::unique_ptr<bpf::RulePrograms>(std::move(programs));
    };
}

Rule rule(const std::string& name, std::uint32_t user = 0) {
    Rule rule;
    rule.name = name;
    rule.user = user;
    rule.marking.mark = 1;
    return rule;
}

}  // namespace

TEST_CASE("without rules nothing is loaded", "[rules]") {
    Kernel kernel;
    Rules rules(into(kernel));
    rules.configure({});
    CHECK(kernel.loaded.empty());
    CHECK(rules.status().empty());
}

TEST_CASE("rules are loaded when they are others, and go when there are none", "[rules]") {
    Kernel kernel;
    Rules rules(into(kernel));
    rules.configure({rule("a")});
    rules.configure({rule("a")});
    CHECK(kernel.loaded.size() == 1);
    rules.configure({rule("a", 1)});
    CHECK(kernel.loaded.size() == 2);
    CHECK(kernel.alive == 1);
    rules.configure({});
    CHECK(kernel.alive == 0);
}

TEST_CASE("a rule of the same name goes on counting", "[rules]") {
    Kernel kernel;
    Rules rules(into(kernel));
    rules.configure({rule("a"), rule("b")});
    kernel.counts = {{3, 1, true}, {5, 0, true}};
    rules.configure({rule("b"), rule("c")});
    kernel.counts = {{1, 0, true}, {7, 0, false}};
    const auto status = rules.status();
    REQUIRE(status.size() == 2);
    CHECK(status[0] == hints::Status::Rule{"b", 6, 0, ""});
    CHECK(status[1].name == "c");
    CHECK(status[1].sockets == 7);
    CHECK_FALSE(status[1].problem.empty());
}

TEST_CASE("rules that the kernel refuses are named, and the old ones stay", "[rules]") {
    Kernel kernel;
    Rules rules(into(kernel));
    kernel.refuses = true;
    rules.configure({rule("a")});
    REQUIRE(rules.status().size() == 1);
    CHECK(rules.status()[0] == hints::Status::Rule{"a", 0, 0, "no"});
    kernel.refuses = false;
    rules.configure({rule("a")});
    kernel.counts = {{2, 0, true}};
    CHECK(rules.status()[0] == hints::Status::Rule{"a", 2, 0, ""});
    kernel.refuses = true;
    rules.configure({rule("b")});
    CHECK(rules.status()[0] == hints::Status::Rule{"a", 2, 0, "no"});
    CHECK(kernel.alive == 1);
}

TEST_CASE("a rule as the kernel's program reads it", "[rules]") {
    Rule full = rule("a", 1000);
    full.cgroup = "/a";
    full.command = "iperf3";
    full.local_port = {1, 2};
    full.remote_port = {3, 4};
    full.remote = parse_prefix("10.0.0.0/8").value();
    full.marking = {0x30005, 2, 34, {}};
    const mercury_rule layout = bpf::to_layout(full, 77);
    CHECK(layout.cgroup == 77);
    CHECK(layout.cgroup_mask == ~0ULL);
    CHECK(layout.user == 1000);
    CHECK(layout.user_mask == ~0U);
    CHECK(std::memcmp(layout.command, "iperf3\0\0\0\0\0\0\0\0\0", 16) == 0);
    CHECK(layout.command_mask == ~0ULL);
    CHECK(std::memcmp(layout.remote, full.remote.address.data(), 16) == 0);
    CHECK(layout.remote_mask[2] == ~0U);
    CHECK(layout.remote_mask[3] == 0xff);
    CHECK(layout.local_port.first == 1);
    CHECK(layout.remote_port.last == 4);
    CHECK(layout.treatment.mark == 0x30005);
    CHECK(layout.treatment.priority == 2);
    CHECK(layout.treatment.dscp == 34);
    CHECK(layout.treatment.sets_dscp == 1);

    const mercury_rule plain = bpf::to_layout(Rule{}, MERCURY_NO_CGROUP);
    CHECK(plain.user_mask == 0);
    CHECK(plain.command_mask == 0);
    CHECK(plain.cgroup_mask == 0);
    CHECK(plain.remote_mask[0] == 0);
    CHECK(plain.remote_port.last == UINT16_MAX);
    CHECK(plain.treatment.sets_dscp == 0);
}
