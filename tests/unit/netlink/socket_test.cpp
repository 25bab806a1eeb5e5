// SPDX-License-Identifier: MIT
//
// Against a real kernel with sch_mercury, as root: the library's socket and its ways of recovery.
#include "netlink/socket.hpp"

#include <algorithm>
#include <cstdlib>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/fd.hpp"
#include "messages.hpp"

using namespace mercury;
using namespace mercury::netlink;

namespace {

/// In a network namespace of its own, which goes with the process.
std::unique_ptr<Socket> open_alone() {
    REQUIRE(unshare(CLONE_NEWNET) == 0);
    auto socket = Socket::open();
    REQUIRE(socket);
    return std::move(socket).value();
}

void run(const std::string& command) {
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);  // NOLINT(cert-env33-c)
}

int index_of(Kernel& kernel, const std::string& name) {
    const auto links = kernel.links();
    REQUIRE(links);
    for (const Link& link : links.value()) {
        if (link.name == name)
            return link.index;
    }
    FAIL("no link " << name);
    return 0;
}

std::optional<Qdisc> root_of(Kernel& kernel, int ifindex) {
    const auto qdiscs = kernel.qdiscs();
    REQUIRE(qdiscs);
    for (const Qdisc& qdisc : qdiscs.value()) {
        if (qdisc.ifindex == ifindex && qdisc.parent == root)
            return qdisc;
    }
    return {};
}

/// As if the kernel had sent it to the first netlink socket of this process, whose port number is
/// the process's own.
void inject(const std::vector<std::byte>& datagram) {
    const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_pid = static_cast<std::uint32_t>(getpid());
    REQUIRE(sendto(socket.get(), datagram.data(), datagram.size(), 0,
                   reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)) == static_cast<ssize_t>(datagram.size()));
}

}  // namespace

TEST_CASE("add, change, refuse, delete in the kernel", "[.kernel]") {
    const auto kernel = open_alone();
    run("ip link add d0 numtxqueues 3 type dummy && ip link set d0 up mtu 1400");
    const auto links = kernel->links();
    REQUIRE(links);
    const auto found = std::find_if(links.value().begin(), links.value().end(),
                                    [](const Link& link) { return link.name == "d0"; });
    REQUIRE(found != links.value().end());
    const int d0 = found->index;
    CHECK(*found == Link{d0, "d0", "dummy", true, false, 1400, 3});

    QdiscRequest request{.verb = Verb::Add, .ifindex = d0, .handle = {0x10000}};
    request.options.jobs = 3;
    request.options.rate = 125'000;
    request.options.ce_threshold = no_time;
    request.options.deadlines = {{{}, 1, 2, Time{7'000'000}}, {1, 5, 5, no_time}};
    REQUIRE(kernel->apply(request));
    auto qdisc = root_of(*kernel, d0);
    REQUIRE(qdisc);
    CHECK(qdisc->kind == MERCURY_KIND);
    CHECK(qdisc->options->jobs == 3U);
    CHECK(qdisc->options->bands == MERCURY_BANDS_DEFAULT);
    CHECK(qdisc->options->rate == 125'000U);
    CHECK(qdisc->options->deadlines->size() == 4);
    CHECK(qdisc->mercury->memory == 0U);

    CHECK(kernel->apply(request).error().message == "Exclusivity flag on, cannot modify");
    request.verb = Verb::Change;
    request.options = {.jobs = MERCURY_JOBS_MAX + 1};
    CHECK(kernel->apply(request).error().message == "sch_mercury: jobs must be 1 to 62");
    CHECK(kernel->apply(ClassRequest{d0, {0x1fc09}, {.weight = 2}}).error().message ==
          "sch_mercury: no such class: jobs and bands say which there are");
    REQUIRE(kernel->apply(ClassRequest{d0, {0x1fc01}, {.weight = 2, .limit = 9}}));
    REQUIRE(kernel->apply(ClassRequest{d0, {0x10003}, {.deadline = Time{5'000'000}, .limit = 4}}));
    const auto classes = kernel->classes(d0, {0x10000});
    REQUIRE(classes);
    const auto of = [&](std::uint32_t minor) {
        const auto one = std::find_if(
            classes.value().begin(), classes.value().end(),
            [minor](const Class& candidate) { return candidate.classid.minor() == minor; });
        REQUIRE(one != classes.value().end());
        return *one;
    };
    CHECK(of(0xfc01).options == ClassOptions{1, {}, 2, {}, 9});
    CHECK(of(3).options == ClassOptions{0, 2, {}, Time{5'000'000}, 4});
    CHECK(of(3).mercury->sojourn.size() == MERCURY_SOJOURN_BUCKETS);
    CHECK(of(MERCURY_MINOR_DEFAULT).options == ClassOptions{});

    request.verb = Verb::Delete;
    REQUIRE(kernel->apply(request));
    CHECK(kernel->apply(request).error().message == "Invalid handle");
    request.handle = {};
    CHECK(kernel->apply(request).error().message == "Cannot delete qdisc with handle of zero");
    CHECK(kernel->apply({.verb = Verb::Replace, .ifindex = d0, .kind = "no_such_kind"})
              .error()
              .message == "Specified qdisc kind is unknown");
}

TEST_CASE("many requests at once, through a reactor", "[.kernel]") {
    const auto kernel = open_alone();
    run("ip link add d0 type dummy && ip link set d0 up && tc qdisc add dev d0 root handle 1: "
        "mercury");
    const int d0 = index_of(*kernel, "d0");
    Reactor reactor;
    REQUIRE(kernel->attach(reactor));
    int left = 1000;
    int refused = 0;
    const auto count = [&] {
        if (--left == 0)
            reactor.stop();
    };
    for (int i = 0; i < 1000; ++i) {
        if (i % 10 == 0) {
            kernel->get_qdiscs([&](const Result<std::vector<Qdisc>>& qdiscs) {
                CHECK(qdiscs);
                count();
            });
            continue;
        }
        const Handle band = Handle{0x10000}.child(static_cast<std::uint32_t>(i % 70 + 1));
        kernel->set(ClassRequest{d0, band, {.limit = 7}}, [&](const Result<void>& done) {
            refused += done ? 0 : 1;
            count();
        });
    }
    REQUIRE(reactor.run());
    // Bands 64 to 69 do not exist.
    int expected = 0;
    for (int i = 0; i < 1000; ++i)
        expected += i % 10 != 0 && i % 70 >= 64 ? 1 : 0;
    CHECK(refused == expected);
}

TEST_CASE("events, and that some were lost", "[.kernel]") {
    const auto kernel = open_alone();
    std::vector<std::string> heard;
    bool lost = false;
    REQUIRE(kernel->subscribe([&](const Event& event) {
        if (const auto* const link = std::get_if<Changed<Link>>(&event))
            heard.push_back(link->now.name + (link->gone ? " gone" : ""));
        else if (const auto* const qdisc = std::get_if<Changed<Qdisc>>(&event))
            heard.push_back(qdisc->now.kind + (qdisc->gone ? " gone" : ""));
        else if (const auto* const one = std::get_if<Changed<Class>>(&event))
            heard.push_back(to_string(one->now.classid));
        else
            lost = true;
    }));
    const auto hears = [&](const std::string& what) {
        while (std::find(heard.begin(), heard.end(), what) == heard.end())
            REQUIRE(kernel->wait());
        heard.clear();
    };
    run("ip link add d0 type dummy");
    hears("d0");
    run("ip link set d0 up");
    hears("d0");
    run("tc qdisc add dev d0 root handle 1: mercury");
    hears("mercury");
    run("tc class change dev d0 classid 1:fc01 mercury weight 2");
    hears("1:fc01");
    run("tc qdisc del dev d0 root");
    hears("mercury gone");
    run("ip link del d0");
    hears("d0 gone");

    run("for i in $(seq 300); do echo link add d$i type dummy; done | ip -batch -");
    while (!lost)
        REQUIRE(kernel->wait());
    const auto links = kernel->links();
    REQUIRE(links);
    CHECK(links.value().size() == 301);  // and lo
}

TEST_CASE("an interrupted dump is read again", "[.kernel]") {
    const auto kernel = open_alone();
    run("for i in $(seq 200); do echo link add d$i type dummy; done | ip -batch -");
    std::optional<std::size_t> found;
    kernel->get_links([&](const Result<std::vector<Link>>& links) {
        REQUIRE(links);
        found = links.value().size();
    });
    // Between the first part of the dump, which is there, and the others.
    inject(test::Message(RTM_NEWLINK, NLM_F_MULTI | NLM_F_DUMP_INTR, 1)
               .add(ifinfomsg{})
               .text(IFLA_IFNAME, "ghost")
               .bytes());
    while (!found)
        REQUIRE(kernel->wait());
    CHECK(found == 201U);  // and lo
}

TEST_CASE("bytes that make no sense fail what is asked for, and nothing else", "[.kernel]") {
    const auto kernel = open_alone();
    run("for i in $(seq 200); do echo link add d$i type dummy; done | ip -batch -");
    std::string error;
    kernel->get_links([&](const Result<std::vector<Link>>& links) {
        REQUIRE_FALSE(links);
        error = links.error().message;
    });
    inject(std::vector<std::byte>(15, std::byte{7}));
    while (error.empty())
        REQUIRE(kernel->wait());
    CHECK(error == "the kernel's netlink message is cut off");
    CHECK(kernel->qdiscs());
}

TEST_CASE("the same through a reactor", "[.kernel]") {
    const auto kernel = open_alone();
    Reactor reactor;
    REQUIRE(kernel->attach(reactor));
    kernel->get_links([&](const Result<std::vector<Link>>& links) {
        CHECK_FALSE(links);
        kernel->get_links([&](const Result<std::vector<Link>>& again) {
            CHECK(again);
            reactor.stop();
        });
    });
    inject(std::vector<std::byte>(15, std::byte{7}));
    // The first part of the dump is all of it, but for its end.
    REQUIRE(reactor.run());
}
