// SPDX-License-Identifier: MIT
#include "daemon/network.hpp"

#include <catch2/catch.hpp>

#include "daemon/settings.hpp"
#include "netlink/fake_kernel.hpp"

using namespace mercury;
using namespace mercury::daemon;
using namespace mercury::netlink;
using namespace std::chrono_literals;

namespace {

constexpr Handle one{0x10000};

Link link(int index, const std::string& name) {
    return {index, name, "veth", true, false, 1500, 1};
}

Qdisc mercury_on(int ifindex, Handle handle = one, Handle parent = netlink::root) {
    Qdisc qdisc;
    qdisc.ifindex = ifindex;
    qdisc.kind = "mercury";
    qdisc.handle = handle;
    qdisc.parent = parent;
    qdisc.options = MercuryOptions{};
    qdisc.options->jobs = 16;
    qdisc.options->bands = 64;
    return qdisc;
}

Qdisc other_on(int ifindex, const std::string& kind) {
    Qdisc qdisc;
    qdisc.ifindex = ifindex;
    qdisc.kind = kind;
    qdisc.handle = {0x80010000};
    qdisc.parent = netlink::root;
    return qdisc;
}

std::vector<DeviceSettings> configured(const std::string& option,
                                       const std::string& device = "eth0") {
    const auto settings =
        parse_settings("[[device]]\nname = \"" + device + "\"\n" + option + "\n", "test.toml");
    INFO((settings ? "" : settings.error().message));
    REQUIRE(settings);
    return settings.value().devices;
}

struct World {
    Reactor reactor;
    Timer look;
    int calm = 0;
    FakeKernel kernel;
    Network network;

    explicit World(std::vector<DeviceSettings> devices = {}) : network(kernel, std::move(devices)) {
        kernel.put(link(1, "eth0"));
        kernel.put(link(2, "eth1"));
    }
    void start() {
        REQUIRE(look.attach(reactor, [this]() -> Result<void> {
            // An event may still be on its way the first time.
            calm = network.is_settled() ? calm + 1 : 0;
            if (calm == 3)
                return Error{"settled"};
            return look.arm(Clock::now() + 5ms);
        }));
        REQUIRE(network.start(reactor));
        settle();
    }
    /// Lets everything happen that is going to.
    void settle() {
        calm = 0;
        REQUIRE(look.arm(Clock::now() + 5ms));
        const auto ended = reactor.run();
        REQUIRE_FALSE(ended);
        REQUIRE(ended.error().message == "settled");
    }
    std::optional<Time> deadline(int ifindex, unsigned job, unsigned band, Handle handle = one) {
        return kernel.deadline(ifindex, handle, job, band);
    }
};

}  // namespace

TEST_CASE("deadlines of a job go to every mercury qdisc, and to no other", "[network]") {
    World world;
    world.kernel.put(mercury_on(1));
    world.kernel.put(other_on(2, "fq_codel"));
    world.start();
    world.network.set_deadlines(3, {1us, 5ms});
    world.settle();
    CHECK(world.deadline(1, 3, 0) == Time(1us));
    CHECK(world.deadline(1, 3, 1) == Time(5ms));
    CHECK(world.deadline(1, 3, 2) == Time(MERCURY_DEADLINE_DEFAULT));
    CHECK(world.deadline(1, 2, 1) == Time(MERCURY_DEADLINE_DEFAULT));
    for (const auto& request : world.kernel.requests())
        CHECK(std::get<QdiscRequest>(request).ifindex == 1);
}

TEST_CASE("what did not change is not told again", "[network]") {
    World world;
    world.kernel.put(mercury_on(1));
    world.start();
    world.network.set_deadlines(3, {1us, 5ms});
    world.network.set_deadlines(3, {1us, 6ms});
    world.settle();
    CHECK(world.kernel.requests().size() == 1);
    world.network.set_deadlines(3, {1us, 6ms});
    world.settle();
    CHECK(world.kernel.requests().size() == 1);
}

TEST_CASE("a job that has ended leaves its bands as those of job 0", "[network]") {
    World world;
    Qdisc qdisc = mercury_on(1);
    qdisc.options->deadlines = {Deadline{{}, 1, 1, Time(7ms)}};
    world.kernel.put(qdisc);
    world.start();
    world.network.set_deadlines(3, {1us, std::nullopt, 9ms});
    world.settle();
    CHECK(world.deadline(1, 3, 1) == Time(7ms));
    CHECK(world.deadline(1, 3, 2) == Time(9ms));
    world.network.set_deadlines(3, {});
    world.settle();
    CHECK(world.deadline(1, 3, 0) == Time(MERCURY_DEADLINE_DEFAULT));
    CHECK(world.deadline(1, 3, 1) == Time(7ms));
    CHECK(world.deadline(1, 3, 2) == Time(MERCURY_DEADLINE_DEFAULT));
}

TEST_CASE("a job brings deadlines forward and never puts them off", "[network]") {
    World world;
    Qdisc qdisc = mercury_on(1);
    qdisc.options->deadlines = {Deadline{{}, 1, 1, Time(7ms)}, Deadline{{}, 2, 2, no_time}};
    world.kernel.put(qdisc);
    world.start();
    world.network.set_deadlines(3, {2s, 8ms, 2s});
    world.settle();
    CHECK(world.deadline(1, 3, 0) == Time(MERCURY_DEADLINE_DEFAULT));
    CHECK(world.deadline(1, 3, 1) == Time(7ms));
    CHECK(world.deadline(1, 3, 2) == Time(2s));  // which had none
}

TEST_CASE("a qdisc that comes later, or again, gets the deadlines", "[network]") {
    World world;
    world.start();
    world.network.set_deadlines(3, {1us, 5ms});
    world.settle();
    CHECK(world.kernel.requests().empty());
    world.kernel.put(mercury_on(1));
    world.settle();
    CHECK(world.deadline(1, 3, 1) == Time(5ms));
    world.kernel.remove_qdisc(1, one);
    world.kernel.put(mercury_on(1));
    CHECK(world.deadline(1, 3, 1) == Time(MERCURY_DEADLINE_DEFAULT));
    world.settle();
    CHECK(world.deadline(1, 3, 1) == Time(5ms));
}

TEST_CASE("after lost events everything is read again", "[network]") {
    World world;
    world.kernel.put(mercury_on(1));
    world.start();
    world.network.set_deadlines(3, {1us, 5ms});
    world.settle();
    const std::size_t before = world.kernel.requests().size();
    world.kernel.overrun();
    world.settle();
    CHECK(world.kernel.requests().size() == before + 1);  // nobody knows what it has
    CHECK(world.deadline(1, 3, 1) == Time(5ms));
}

TEST_CASE("every instance under mq gets the deadlines", "[network]") {
    World world;
    world.kernel.put(mercury_on(1, {0x80010000}, {0x00010001}));
    world.kernel.put(mercury_on(1, {0x80020000}, {0x00010002}));
    world.start();
    world.network.set_deadlines(1, {2ms});
    world.settle();
    CHECK(world.deadline(1, 1, 0, {0x80010000}) == Time(2ms));
    CHECK(world.deadline(1, 1, 0, {0x80020000}) == Time(2ms));
    const auto status = world.network.status();
    REQUIRE(status.size() == 1);
    CHECK(status[0].qdiscs == 2);
    CHECK_FALSE(status[0].managed);
}

TEST_CASE("a qdisc without so many jobs is not told of them", "[network]") {
    World world;
    Qdisc few = mercury_on(1);
    few.options->jobs = 2;
    world.kernel.put(few);
    world.start();
    world.network.set_deadlines(2, {2ms});
    world.settle();
    CHECK(world.kernel.requests().empty());
}

TEST_CASE("a qdisc that does not read the mark as it is set is not told, and it is said",
          "[network]") {
    World world;
    Qdisc deaf = mercury_on(1);
    deaf.options->key = MERCURY_KEY_DSCP;
    world.kernel.put(deaf);
    world.start();
    world.network.set_deadlines(1, {2ms});
    world.settle();
    CHECK(world.kernel.requests().empty());
    REQUIRE(world.network.status().size() == 1);
    CHECK_THAT(world.network.status()[0].problem, Catch::Matchers::Contains("key"));
}

TEST_CASE("a refusal is not repeated for ever", "[network]") {
    World world;
    world.kernel.put(mercury_on(1));
    world.start();
    world.kernel.refuse_next("no");
    world.network.set_deadlines(1, {2ms});
    world.settle();
    CHECK(world.kernel.requests().size() == 1);
}

TEST_CASE("a configured device gets its qdisc; the other keeps what it has", "[network]") {
    World world(configured("rate = \"1gbit\""));
    world.kernel.put(other_on(1, "fq_codel"));
    world.kernel.put(other_on(2, "fq_codel"));
    world.start();
    const auto status = world.network.status();
    REQUIRE(status.size() == 1);
    CHECK(status[0].name == "eth0");
    CHECK(status[0].managed);
    CHECK(status[0].problem.empty());
    CHECK(status[0].qdiscs == 1);
    REQUIRE(world.kernel.requests().size() == 1);
    const auto& request = std::get<QdiscRequest>(world.kernel.requests()[0]);
    CHECK(request.ifindex == 1);
    CHECK(request.kind == "mercury");
    CHECK(request.options.rate == std::uint64_t{125'000'000});
}

TEST_CASE("a configured device that comes later gets its qdisc as well", "[network]") {
    World world(configured("", "eth7"));
    world.start();
    REQUIRE(world.network.status().size() == 1);
    CHECK_THAT(world.network.status()[0].problem, Catch::Matchers::Contains("no such device"));
    world.kernel.put(link(7, "eth7"));
    world.settle();
    CHECK(world.network.status()[0].problem.empty());
    CHECK(world.network.status()[0].qdiscs == 1);
}

TEST_CASE("a configured qdisc that somebody removes comes again", "[network]") {
    World world(configured(""));
    world.start();
    world.kernel.remove_qdisc(1, one);
    world.settle();
    CHECK(world.kernel.requests().size() == 2);
    CHECK(world.network.status()[0].qdiscs == 1);
}

TEST_CASE("what the kernel refuses is the device's problem", "[network]") {
    World world(configured(""));
    world.kernel.refuse_next("Operation not permitted");
    world.start();
    CHECK(world.network.status()[0].problem == "Operation not permitted");
}

TEST_CASE("a new configuration is applied, and devices that are not in it are left as they are",
          "[network]") {
    World world(configured("rate = \"1gbit\""));
    world.start();
    world.network.configure(configured("rate = \"2gbit\""));
    world.settle();
    REQUIRE(world.kernel.requests().size() == 2);
    CHECK(std::get<QdiscRequest>(world.kernel.requests()[1]).verb == Verb::Change);
    CHECK(std::get<QdiscRequest>(world.kernel.requests()[1]).options.rate ==
          std::uint64_t{250'000'000});
    world.network.configure({});
    world.settle();
    CHECK(world.kernel.requests().size() == 2);
    REQUIRE(world.network.status().size() == 1);
    CHECK_FALSE(world.network.status()[0].managed);
}

TEST_CASE("configured deadlines hold where no job says otherwise, and do not fight with jobs",
          "[network]") {
    World world(configured("deadlines = [\"0-1 7ms\"]"));
    world.start();
    CHECK(world.deadline(1, 3, 1) == Time(7ms));
    world.network.set_deadlines(3, {1us});
    world.settle();
    CHECK(world.deadline(1, 3, 0) == Time(1us));
    CHECK(world.deadline(1, 3, 1) == Time(7ms));
    const std::size_t calm = world.kernel.requests().size();
    world.settle();
    CHECK(world.kernel.requests().size() == calm);

    world.network.configure(configured("deadlines = [\"0-1 8ms\"]"));
    world.settle();
    world.settle();
    CHECK(world.deadline(1, 3, 0) == Time(1us));
    CHECK(world.deadline(1, 3, 1) == Time(8ms));
    CHECK(world.deadline(1, 4, 0) == Time(8ms));
}

TEST_CASE("configured weights are set when a qdisc is first seen, and when they change",
          "[network]") {
    const auto weight = [](World& world, std::uint32_t job) -> std::optional<std::uint32_t> {
        for (const Class& found : world.kernel.classes(1, one).value()) {
            if (found.classid == one.child(MERCURY_MINOR_JOB(job)))
                return found.options->weight;
        }
        return {};
    };
    World world(configured("jobs = 3\nweights = [\"1 4\"]"));
    world.start();
    CHECK(weight(world, 1) == 4U);
    CHECK(weight(world, 2) == 1U);
    const std::size_t calm = world.kernel.requests().size();
    world.settle();
    CHECK(world.kernel.requests().size() == calm);

    // One that the qdisc has only now.
    world.network.configure(configured("jobs = 4\nweights = [\"3 2\"]"));
    world.settle();
    world.settle();
    CHECK(weight(world, 1) == 1U);
    CHECK(weight(world, 3) == 2U);
}

TEST_CASE("with mq each queue has a qdisc, which gets all that is configured and deadlines of jobs",
          "[network]") {
    World world(configured("mq = true\ndeadlines = [\"0-1 7ms\"]\nweights = [\"1 4\"]"));
    Link two_queues = link(1, "eth0");
    two_queues.tx_queues = 2;
    world.kernel.put(two_queues);
    world.start();
    world.network.set_deadlines(3, {1us});
    world.settle();
    std::vector<Handle> below;
    for (const Qdisc& qdisc : world.kernel.qdiscs().value()) {
        if (qdisc.kind == MERCURY_KIND)
            below.push_back(qdisc.handle);
    }
    REQUIRE(below.size() == 2);
    for (const Handle handle : below) {
        CHECK(world.deadline(1, 3, 0, handle) == Time(1us));
        CHECK(world.deadline(1, 3, 1, handle) == Time(7ms));
    }
    CHECK(world.network.status().at(0).qdiscs == 2);

    world.kernel.remove_qdisc(1, below[1]);
    world.settle();
    world.settle();
    CHECK(world.network.status().at(0).qdiscs == 2);
    CHECK(world.network.status().at(0).problem.empty());
}
