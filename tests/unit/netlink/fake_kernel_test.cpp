// SPDX-License-Identifier: MIT
#include "netlink/fake_kernel.hpp"

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::netlink;

namespace {

Link eth0() {
    Link link;
    link.index = 2;
    link.name = "eth0";
    return link;
}

QdiscRequest mercury_at(Verb verb, MercuryOptions options = {}) {
    return {.verb = verb, .ifindex = 2, .handle = {0x10000}, .options = std::move(options)};
}

Qdisc only_qdisc(FakeKernel& kernel) {
    const auto qdiscs = kernel.qdiscs();
    REQUIRE(qdiscs);
    REQUIRE(qdiscs.value().size() == 1);
    return qdiscs.value()[0];
}

}  // namespace

TEST_CASE("a new qdisc has the module's defaults; a change leaves what it does not name") {
    FakeKernel kernel;
    kernel.put(eth0());
    REQUIRE(kernel.apply(mercury_at(Verb::Add, {.bands = 8})));
    CHECK(only_qdisc(kernel).options->bands == 8U);
    CHECK(only_qdisc(kernel).options->jobs == MERCURY_JOBS_DEFAULT);
    REQUIRE(kernel.apply(mercury_at(Verb::Change, {.rate = 1000})));
    CHECK(only_qdisc(kernel).options->bands == 8U);
    CHECK(only_qdisc(kernel).options->rate == 1000U);
    CHECK(kernel.requests().size() == 2);
}

TEST_CASE("add, change and delete are refused where the kernel refuses them") {
    FakeKernel kernel;
    CHECK(kernel.apply(mercury_at(Verb::Add)).error().message == "No such device");
    kernel.put(eth0());
    CHECK_FALSE(kernel.apply(mercury_at(Verb::Change)));
    CHECK_FALSE(kernel.apply(mercury_at(Verb::Delete)));
    REQUIRE(kernel.apply(mercury_at(Verb::Add)));
    CHECK_FALSE(kernel.apply(mercury_at(Verb::Add)));
    REQUIRE(kernel.apply({.verb = Verb::Replace, .ifindex = 2, .kind = "fq_codel"}));
    CHECK(only_qdisc(kernel).kind == "fq_codel");
    CHECK(to_string(only_qdisc(kernel).handle) == "8001:");
    CHECK(kernel.apply(mercury_at(Verb::Delete)).error().message == "Invalid handle");
    REQUIRE(kernel.apply(QdiscRequest{.verb = Verb::Delete, .ifindex = 2}));
    CHECK(kernel.qdiscs().value().empty());
}

TEST_CASE("a refusal that a test asks for is for one request") {
    FakeKernel kernel;
    kernel.put(eth0());
    kernel.refuse_next("sch_mercury: no");
    CHECK(kernel.apply(mercury_at(Verb::Add)).error().message == "sch_mercury: no");
    CHECK(kernel.apply(mercury_at(Verb::Add)));
}

TEST_CASE("deadlines by request and by class; classes are those that were set") {
    FakeKernel kernel;
    kernel.put(eth0());
    REQUIRE(kernel.apply(mercury_at(Verb::Add, {.jobs = 2, .deadlines = {{{{}, 0, 3, Time{5}}}}})));
    const Handle qdisc{0x10000};
    REQUIRE(kernel.apply(ClassRequest{
        2, qdisc.child(MERCURY_MINOR_BAND(1, 2)), {.deadline = Time{9000}, .limit = 3}}));
    REQUIRE(kernel.apply(ClassRequest{2, qdisc.child(MERCURY_MINOR_JOB(1)), {.weight = 4}}));
    REQUIRE(kernel.apply(
        ClassRequest{2, qdisc.child(MERCURY_MINOR_BAND(0, 9)), {.deadline = Time{9000}}}));
    CHECK(kernel.deadline(2, qdisc, 0, 2) == Time{5});
    CHECK(kernel.deadline(2, qdisc, 1, 2) == Time{9000});
    CHECK(kernel.deadline(2, qdisc, 1, 9) == Time{MERCURY_DEADLINE_DEFAULT});
    CHECK_FALSE(kernel.deadline(2, qdisc, 2, 0));
    CHECK(only_qdisc(kernel).options->deadlines->size() == 5);

    const auto classes = kernel.classes(2, qdisc);
    REQUIRE(classes);
    REQUIRE(classes.value().size() == 2);
    CHECK(classes.value()[0].options == ClassOptions{1, 2, {}, Time{9000}, 3});
    CHECK(classes.value()[1].options == ClassOptions{1, {}, 4, {}, {}});
    CHECK_FALSE(kernel.apply(ClassRequest{2, qdisc.child(MERCURY_MINOR_JOB(2)), {.weight = 4}}));
}

TEST_CASE("events come later, in order, and only to who asked for them") {
    FakeKernel kernel;
    std::vector<std::string> heard;
    kernel.put(eth0());
    REQUIRE(kernel.subscribe([&](const Event& event) {
        if (const auto* const link = std::get_if<Changed<Link>>(&event))
            heard.push_back(link->now.name + (link->gone ? " gone" : ""));
        else if (const auto* const qdisc = std::get_if<Changed<Qdisc>>(&event))
            heard.push_back(qdisc->now.kind + (qdisc->gone ? " gone" : ""));
        else if (std::holds_alternative<Overrun>(event))
            heard.push_back("overrun");
    }));
    REQUIRE(kernel.apply(mercury_at(Verb::Add)));
    kernel.overrun();
    kernel.remove_link(2);
    CHECK(heard == std::vector<std::string>{"mercury"});
    while (kernel.wait()) {
    }
    CHECK(heard == std::vector<std::string>{"mercury", "overrun", "mercury gone", "eth0 gone"});
}

TEST_CASE("it works with a reactor") {
    Reactor reactor;
    FakeKernel kernel;
    kernel.put(eth0());
    REQUIRE(kernel.attach(reactor));
    std::size_t links = 0;
    kernel.get_links([&](const Result<std::vector<Link>>& result) {
        links = result.value().size();
        kernel.set(mercury_at(Verb::Add), [&](const Result<void>& added) {
            CHECK(added);
            reactor.stop();
        });
    });
    CHECK(links == 0);
    REQUIRE(reactor.run());
    CHECK(links == 1);
    CHECK(only_qdisc(kernel).kind == "mercury");
}
