// SPDX-License-Identifier: MIT
#include "cli/snapshot.hpp"

#include <catch2/catch.hpp>

#include "cli/json.hpp"
#include "netlink/fake_kernel.hpp"

using namespace mercury;
using namespace mercury::cli;
using netlink::FakeKernel;

namespace {

void put_link(FakeKernel& kernel, int index, const std::string& name) {
    netlink::Link link;
    link.index = index;
    link.name = name;
    kernel.put(link);
}

netlink::Class band(std::uint64_t packets, std::vector<std::uint64_t> sojourn) {
    netlink::Class one;
    one.ifindex = 2;
    one.kind = MERCURY_KIND;
    one.classid = {0x10003};
    one.options = netlink::ClassOptions{.job = 0, .band = 2};
    one.statistics.packets = packets;
    one.statistics.qlen = 7;
    one.mercury.emplace();
    one.mercury->missed = packets / 2;
    one.mercury->lateness_max = netlink::Time{packets};
    one.mercury->sojourn = std::move(sojourn);
    return one;
}

Snapshot taken(FakeKernel& kernel, const std::string& device = "") {
    auto snapshot = read_snapshot(kernel, device);
    REQUIRE(snapshot);
    return std::move(snapshot).value();
}

}  // namespace

TEST_CASE("devices with and without mercury, or one of them") {
    FakeKernel kernel;
    put_link(kernel, 2, "eth0");
    put_link(kernel, 3, "eth1");
    REQUIRE(kernel.apply(netlink::QdiscRequest{.ifindex = 2, .handle = {0x10000}}));
    kernel.put(band(1, {}));
    const Snapshot all = taken(kernel);
    REQUIRE(all.devices.size() == 2);
    REQUIRE(all.devices[0].mercury.size() == 1);
    CHECK(all.devices[0].mercury[0].classes.size() == 1);
    CHECK(all.devices[1].mercury.empty());
    CHECK(taken(kernel, "eth1").devices.size() == 1);
    CHECK(read_snapshot(kernel, "eth7").error().message ==
          "there is no device eth7; there are eth0, eth1");
}

TEST_CASE("what was counted since; what is there now stays") {
    FakeKernel kernel;
    put_link(kernel, 2, "eth0");
    REQUIRE(kernel.apply(netlink::QdiscRequest{.ifindex = 2, .handle = {0x10000}}));
    kernel.put(band(100, {3, 4}));
    const Snapshot earlier = taken(kernel);
    kernel.put(band(150, {3, 9, 1}));
    const Snapshot delta = since(earlier, taken(kernel));
    const netlink::Class& one = delta.devices[0].mercury[0].classes[0];
    CHECK(one.statistics.packets == 50);
    CHECK(one.statistics.qlen == 7);
    CHECK(one.mercury->missed == 25U);
    CHECK(one.mercury->lateness_max == netlink::Time{150});
    CHECK(one.mercury->sojourn == std::vector<std::uint64_t>{0, 5, 1});
}

TEST_CASE("a class that is new, or has begun again, has counted from 0") {
    FakeKernel kernel;
    put_link(kernel, 2, "eth0");
    REQUIRE(kernel.apply(netlink::QdiscRequest{.ifindex = 2, .handle = {0x10000}}));
    const Snapshot empty = taken(kernel);
    kernel.put(band(100, {5}));
    const Snapshot first = taken(kernel);
    CHECK(since(empty, first).devices[0].mercury[0].classes[0].statistics.packets == 100);
    kernel.put(band(10, {2}));
    const Snapshot again = since(first, taken(kernel));
    CHECK(again.devices[0].mercury[0].classes[0].statistics.packets == 10);
    CHECK(again.devices[0].mercury[0].classes[0].mercury->sojourn[0] == 2);
}

TEST_CASE("JSON says null where tc says none, and bounds where there are some") {
    FakeKernel kernel;
    put_link(kernel, 2, "eth0");
    REQUIRE(kernel.apply(
        netlink::QdiscRequest{.ifindex = 2,
                              .handle = {0x10000},
                              .options = {.deadlines = {{{1, 2, 3, netlink::no_time}}}}}));
    kernel.put(band(4, {1, 0, 3}));
    const Json json = to_json(taken(kernel).devices[0]);
    const Json& qdisc = json["qdiscs"][0];
    CHECK(qdisc["options"]["rate"] == nullptr);
    CHECK(qdisc["options"]["mask"] == "0xffff");
    CHECK(qdisc["options"]["ack_first"] == true);
    CHECK(qdisc["options"]["split_gso"] == "auto");
    CHECK(qdisc["options"]["deadlines"].dump() ==
          R"([{"job":1,"first":2,"last":3,"deadline_ns":null}])");
    const Json& one = qdisc["classes"][0];
    CHECK(one["sojourn"].dump() ==
          R"([{"below_ns":1024,"packets":1},{"below_ns":null,"packets":3}])");
    CHECK(one["sojourn_p50_below_ns"] == nullptr);
    CHECK(one["classid"] == "1:3");
}
