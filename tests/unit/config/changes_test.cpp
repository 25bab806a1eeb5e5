// SPDX-License-Identifier: MIT
#include "config/changes.hpp"

#include <catch2/catch.hpp>

#include "netlink/fake_kernel.hpp"

using namespace mercury;
using netlink::FakeKernel;
using netlink::Handle;
using netlink::Time;

namespace {

std::vector<DeviceSettings> devices(const std::string& options) {
    const auto table = parse_toml("[[device]]\nname = \"eth0\"\n" + options, "m.toml");
    REQUIRE(table);
    Problems problems("m.toml");
    SettingReader reader(table.value(), "", 1, problems);
    auto all = read_devices(reader);
    REQUIRE(problems.outcome());
    return all;
}

void put_eth0(FakeKernel& kernel) {
    netlink::Link link;
    link.index = 2;
    link.name = "eth0";
    kernel.put(link);
}

Changes changes_in(FakeKernel& kernel, const std::string& options) {
    std::vector<netlink::Class> classes;
    for (const netlink::Qdisc& qdisc : kernel.qdiscs().value()) {
        const auto of_qdisc = kernel.classes(qdisc.ifindex, qdisc.handle).value();
        classes.insert(classes.end(), of_qdisc.begin(), of_qdisc.end());
    }
    return changes_to(devices(options), kernel.links().value(), kernel.qdiscs().value(), classes);
}

/// Makes it so; the changes that this took.
std::vector<Change> apply(FakeKernel& kernel, const std::string& options) {
    auto changes = changes_in(kernel, options).changes;
    for (const Change& change : changes)
        REQUIRE(make(kernel, change));
    CHECK(changes_in(kernel, options).changes.empty());
    return changes;
}

}  // namespace

TEST_CASE("a device without mercury gets one, and a second time there is nothing to do") {
    FakeKernel kernel;
    put_eth0(kernel);
    const auto changes = apply(kernel, "rate = \"1gbit\"\ndeadlines = [\"3 5ms\"]");
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].replaces == "noqueue");
    CHECK(to_string(changes[0].request.handle) == "1:");
    REQUIRE(changes[0].options.size() == 2);
    CHECK(changes[0].options[0].name == "rate");
    CHECK(changes[0].options[0].from.empty());
    CHECK(changes[0].options[0].to == "1gbit");
    CHECK(changes[0].options[1].to == "[3 5ms]");
    CHECK(kernel.deadline(2, {0x10000}, 7, 3) == Time{5'000'000});
}

TEST_CASE("mercury that is there is changed in place, whatever its handle") {
    FakeKernel kernel;
    put_eth0(kernel);
    REQUIRE(kernel.apply({.verb = netlink::Verb::Add, .ifindex = 2, .handle = {0x70000}}));
    const auto changes = apply(kernel, "limit = 5\nrate = \"1gbit\"");
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].replaces.empty());
    CHECK(changes[0].request.verb == netlink::Verb::Change);
    REQUIRE(changes[0].options.size() == 2);
    CHECK(changes[0].options[0].from == "100000");
    CHECK(changes[0].options[0].to == "5");
    CHECK(changes[0].options[1].from == "none");
    CHECK_FALSE(changes[0].request.options.jobs);

    // What is no longer in the file goes back to its default.
    const auto back = apply(kernel, "rate = \"1gbit\"");
    REQUIRE(back.size() == 1);
    CHECK(back[0].options[0].to == "100000");
}

TEST_CASE("another qdisc is replaced, also where it has the usual handle") {
    FakeKernel kernel;
    put_eth0(kernel);
    netlink::Qdisc htb;
    htb.ifindex = 2;
    htb.kind = "htb";
    htb.handle = {0x10000};
    htb.parent = netlink::root;
    kernel.put(htb);
    const auto changes = apply(kernel, "");
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].replaces == "htb");
    CHECK(to_string(changes[0].request.handle) == "10:");
}

TEST_CASE("deadlines that the file does not name are left alone; those that it names are all") {
    FakeKernel kernel;
    put_eth0(kernel);
    apply(kernel, "");
    REQUIRE(kernel.apply(netlink::ClassRequest{2, {0x10003}, {.deadline = Time{7000}}}));
    CHECK(apply(kernel, "").empty());
    CHECK(kernel.deadline(2, {0x10000}, 0, 2) == Time{7000});

    const auto changes = apply(kernel, "deadlines = [\"0:5 1ms\"]");
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].options[0].from == "[0:2 7us]");
    CHECK(kernel.deadline(2, {0x10000}, 0, 2) == Time{MERCURY_DEADLINE_DEFAULT});
    CHECK(kernel.deadline(2, {0x10000}, 0, 5) == Time{1'000'000});
    CHECK(apply(kernel, "deadlines = []").size() == 1);
    CHECK(kernel.deadline(2, {0x10000}, 0, 5) == Time{MERCURY_DEADLINE_DEFAULT});
}

TEST_CASE("a device that there is not is named") {
    FakeKernel kernel;
    const Changes changes = changes_in(kernel, "");
    CHECK(changes.changes.empty());
    CHECK(changes.missing == std::vector<std::string>{"eth0"});
}

TEST_CASE("weights are of all jobs, and go with a new qdisc") {
    FakeKernel kernel;
    put_eth0(kernel);
    const auto changes = apply(kernel, "jobs = 4\nweights = [\"1 4\", \"2-3 2\"]");
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].classes.size() == 3);
    CHECK(changes[0].options.back().to == "[1 4, 2 2, 3 2]");
    const auto fewer = apply(kernel, "jobs = 4\nweights = [\"1 4\"]");
    REQUIRE(fewer.size() == 1);
    CHECK_FALSE(fewer[0].changes_qdisc());
    CHECK(fewer[0].options[0].from == "[1 4, 2 2, 3 2]");
    CHECK(fewer[0].classes.size() == 2);
    CHECK(apply(kernel, "jobs = 4").empty());  // left alone
    CHECK(apply(kernel, "jobs = 4\nweights = []").size() == 1);
}

TEST_CASE("with mq each transmit queue has one, also those that lost theirs") {
    FakeKernel kernel;
    netlink::Link link;
    link.index = 2;
    link.name = "eth0";
    link.tx_queues = 3;
    kernel.put(link);
    const auto changes = apply(kernel, "mq = true\nrate = \"1gbit\"\nweights = [\"1 4\"]");
    REQUIRE(changes.size() == 4);
    CHECK(changes[0].request.kind == "mq");
    CHECK(to_string(changes[0].request.handle) == "1:");
    CHECK(to_string(changes[3].request.parent) == "1:3");
    CHECK(changes[3].classes[0].classid.qdisc() == changes[3].request.handle);

    kernel.remove_qdisc(2, changes[2].request.handle);
    const auto mended = apply(kernel, "mq = true\nrate = \"1gbit\"\nweights = [\"1 4\"]");
    REQUIRE(mended.size() == 1);
    CHECK(to_string(mended[0].request.parent) == "1:2");
    CHECK(apply(kernel, "mq = true\nrate = \"2gbit\"").size() == 3);

    link.tx_queues = 1;
    kernel.put(link);
    CHECK(apply(kernel, "mq = true").size() == 1);  // at the root, as without
}
