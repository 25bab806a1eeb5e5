// SPDX-License-Identifier: MIT
#include "cli/doctor.hpp"

#include <map>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::cli;
using netlink::Handle;

namespace {

QdiscState mercury_at(Handle parent, netlink::MercuryOptions options = {}) {
    QdiscState state;
    state.qdisc.kind = MERCURY_KIND;
    state.qdisc.handle = {0x10000};
    state.qdisc.parent = parent;
    state.qdisc.options = std::move(options);
    return state;
}

/// A NIC of 10 Gbit/s with mercury and a rate below it.
Nic good_nic() {
    Nic nic;
    nic.state.link.name = "eth0";
    nic.state.link.up = true;
    nic.state.mercury.push_back(mercury_at(netlink::root, {.rate = 1'212'500'000}));
    nic.state.qdiscs.push_back(nic.state.mercury[0].qdisc);
    nic.driver = "ixgbe";
    nic.speed = 10'000;
    nic.gso = true;
    return nic;
}

Facts good() {
    Facts facts;
    facts.release = "6.12.9+deb13-amd64";
    facts.module_loaded = true;
    facts.module_loadable = true;
    facts.notsent_lowat = 131072;
    facts.limit_output = 4 << 20;
    facts.nics.push_back(good_nic());
    return facts;
}

std::map<std::string, Finding> wrong(const Facts& facts) {
    std::map<std::string, Finding> found;
    for (const Finding& finding : diagnose(facts)) {
        if (finding.good)
            continue;
        CHECK_FALSE(finding.why.empty());
        CHECK_FALSE(finding.mend.empty());
        CHECK(found.emplace(finding.check, finding).second);
    }
    return found;
}

/// The only thing that is wrong.
Finding only(const Facts& facts, const std::string& check) {
    const auto found = wrong(facts);
    REQUIRE(found.size() == 1);
    REQUIRE(found.begin()->first == check);
    return found.begin()->second;
}

}  // namespace

TEST_CASE("where all is well, nothing is to be mended") {
    CHECK(wrong(good()).empty());
    CHECK_THAT(doctor_text(diagnose(good())), Catch::EndsWith("all is well\n"));
    CHECK(doctor_json(diagnose(good()))["good"] == true);
}

TEST_CASE("the kernel, the module and the plugin") {
    Facts facts = good();
    facts.release = "5.10.0-28-amd64";
    CHECK(only(facts, "kernel").what == "Linux 5.10.0-28-amd64 is older than 6.1");
    for (const char* const release : {"6.1.0-18-amd64", "7.3.4-um", "10.0"}) {
        facts.release = release;
        CHECK(wrong(facts).empty());
    }
    facts.module_loaded = false;
    CHECK(wrong(facts).empty());
    facts.module_loadable = false;
    only(facts, "module");

    facts = good();
    facts.plugin = Plugin::Missing;
    CHECK(only(facts, "plugin").what == "tc does not know mercury");
    facts.plugin = Plugin::NoTc;
    CHECK(only(facts, "plugin").mend == "apt install iproute2");
}

TEST_CASE("sockets that bind early, or hold too little") {
    Facts facts = good();
    facts.notsent_lowat = 4294967295;
    CHECK(only(facts, "notsent_lowat").mend == "sysctl -w net.ipv4.tcp_notsent_lowat=131072");
    facts.notsent_lowat.reset();  // no such setting here
    CHECK(wrong(facts).empty());
    facts.limit_output = 4096;
    CHECK(only(facts, "limit_output").mend == "sysctl -w net.ipv4.tcp_limit_output_bytes=1048576");
}

TEST_CASE("no device has mercury: the first one that is up and hardware is meant") {
    Facts facts = good();
    facts.nics[0].state.mercury.clear();
    Nic veth;
    veth.state.link.name = "veth0";
    veth.state.link.up = true;
    facts.nics.insert(facts.nics.begin(), veth);
    CHECK(only(facts, "device").mend ==
          "tc qdisc replace dev eth0 root handle 1: mercury rate 9700mbit");
    facts.nics.pop_back();
    CHECK(only(facts, "device").mend ==
          "tc qdisc replace dev veth0 root handle 1: mercury rate RATE");
    facts.nics.clear();
    CHECK(only(facts, "device").mend ==
          "tc qdisc replace dev DEV root handle 1: mercury rate RATE");
}

TEST_CASE("a rate that is missing where it is needed, or too high") {
    Facts facts = good();
    auto& options = *facts.nics[0].state.mercury[0].qdisc.options;
    options.rate = 1'250'000'000;
    CHECK(only(facts, "rate").mend == "tc qdisc change dev eth0 root mercury rate 9700mbit");
    options.rate = 0;
    CHECK(wrong(facts).empty());  // hardware pushes back
    facts.nics[0].driver = "virtio_net";
    CHECK(only(facts, "rate").what == "eth0 shapes to no rate, and is a virtual NIC (virtio_net)");
    facts.nics[0].driver = "";
    facts.nics[0].speed.reset();
    CHECK(only(facts, "rate").mend == "tc qdisc change dev eth0 root mercury rate RATE");
    options.rate = 12'500'000'000;
    CHECK(wrong(facts).empty());
}

TEST_CASE("GSO packets that last too long") {
    Facts facts = good();
    auto& options = *facts.nics[0].state.mercury[0].qdisc.options;
    options.rate = 12'500'000;
    options.split_gso = MERCURY_SPLIT_AUTO;
    CHECK(wrong(facts).empty());
    options.split_gso = MERCURY_SPLIT_OFF;
    CHECK(only(facts, "gso").what == "eth0 sends GSO packets whole, and one lasts up to 5.24ms");
    facts.nics[0].gso = false;
    CHECK(wrong(facts).empty());
    // Without a rate, auto does not split: on a slow link it should.
    facts.nics[0].gso = true;
    facts.nics[0].speed = 100;
    options.rate = 0;
    options.split_gso = MERCURY_SPLIT_AUTO;
    CHECK(only(facts, "gso").mend == "tc qdisc change dev eth0 root mercury split_gso");
    options.split_gso = MERCURY_SPLIT_ON;
    CHECK(wrong(facts).empty());
}

TEST_CASE("mq with mercury below some of its queues only") {
    Facts facts = good();
    Nic& nic = facts.nics[0];
    nic.queues = 3;
    netlink::Qdisc mq;
    mq.kind = "mq";
    mq.handle = {0x70000};
    mq.parent = netlink::root;
    nic.state.qdiscs = {mq};
    nic.state.mercury = {mercury_at({0x70002}, {.rate = 125'000'000})};
    CHECK(only(facts, "queues").mend ==
          "tc qdisc replace dev eth0 parent 7:1 mercury; "
          "tc qdisc replace dev eth0 parent 7:3 mercury");
    nic.state.mercury.push_back(mercury_at({0x70001}));
    nic.state.mercury.push_back(mercury_at({0x70003}));
    CHECK(wrong(facts).empty());
}

TEST_CASE("a device that is down") {
    Facts facts = good();
    facts.nics[0].state.link.up = false;
    CHECK(only(facts, "up").mend == "ip link set eth0 up");
}
