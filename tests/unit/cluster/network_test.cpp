// SPDX-License-Identifier: MIT
//
// What the emulated network does to packets. In virtual time, where computing costs nothing: all
// times are the network's.
#include "replay/network.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <arpa/inet.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "common/process.hpp"
#include "replay/bound.hpp"
#include "replay/case_progress.hpp"
#include "replay/counters.hpp"
#include "replay/upload.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

const Rate ten_gbit{10'000'000'000};
/// What virtual time may add to the trip of a byte. The clock goes in ticks of 256 ns, and also
/// takes one each time that a process reads it: two or three times here, TCP's own included. A
/// timer that a tick brings up too early is set once more, to no less than 500 ns.
constexpr auto clock_slack = 3 * 256ns + 500ns;

Network built(const NetworkSettings& settings) {
    REQUIRE(virtual_time());
    auto network = Network::build(settings);
    INFO((network ? "" : network.error().message));
    REQUIRE(network);
    return std::move(network).value();
}

NetworkSettings switched(std::size_t hosts, SwitchSettings ports = {}) {
    NetworkSettings settings;
    settings.hosts = hosts;
    settings.ports = ports;
    return settings;
}

Connection connected(const Network& network, std::size_t from, std::size_t to, in_port_t port,
                     unsigned dscp = 0) {
    Endpoint endpoint;
    endpoint.address.sin_port = htons(port);
    endpoint.dscp = dscp;
    auto connection = connect_hosts(network, from, to, endpoint);
    INFO((connection ? "" : connection.error().message));
    REQUIRE(connection);
    return std::move(connection).value();
}

std::unique_ptr<Upload> upload(const Network& network, std::size_t from, std::size_t to,
                               in_port_t port, unsigned dscp = 0) {
    auto connection = connected(network, from, to, port, dscp);
    return std::make_unique<Upload>(std::move(connection.from), std::move(connection.to));
}

/// How long one byte takes.
std::chrono::nanoseconds one_way(const Fd& from, const Fd& to) {
    const auto start = std::chrono::steady_clock::now();
    char byte = 'x';
    REQUIRE(send(from.get(), &byte, 1, 0) == 1);
    REQUIRE(recv(to.get(), &byte, 1, 0) == 1);
    return std::chrono::steady_clock::now() - start;
}

/// Bits a second of all of them together, over TIME.
template <typename... Uploads>
double goodput(std::chrono::nanoseconds time, const Uploads&... uploads) {
    const auto bytes = [&] { return (uploads->received() + ...); };
    const auto before = bytes();
    std::this_thread::sleep_for(time);
    return static_cast<double>(bytes() - before) * 8 / std::chrono::duration<double>(time).count();
}

std::uint64_t at_ports(const Network& network) {
    const auto drops = network.drops();
    REQUIRE(drops);
    std::uint64_t sum = 0;
    for (const auto count : drops.value().ports)
        sum += count;
    return sum;
}

/// Datagrams of 1472 bytes, which are frames of 1514, sent as fast as the host's link takes them.
struct Flood {
    static constexpr std::size_t payload = 1472;
    static constexpr std::size_t frame = payload + 28 + 14;
    static constexpr in_port_t port = 9;

    static void send(const Network& network, std::size_t from, std::size_t to, std::size_t count,
                     unsigned dscp) {
        auto socket = network.host(from).run<Fd>(
            []() -> Result<Fd> { return Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); });
        REQUIRE(socket);
        const int tos = static_cast<int>(dscp << 2);
        REQUIRE(setsockopt(socket.value().get(), IPPROTO_IP, IP_TOS, &tos, sizeof(tos)) == 0);
        sockaddr_in address{AF_INET, htons(port), network.address(to), {}};
        const std::vector<char> zeros(payload);
        for (std::size_t i = 0; i < count; ++i) {
            REQUIRE(sendto(socket.value().get(), zeros.data(), payload, 0,
                           reinterpret_cast<const sockaddr*>(&address),
                           sizeof(address)) == static_cast<ssize_t>(payload));
        }
    }

    /// Frames that have come to HOST.
    static std::uint64_t received(const Network& network, std::size_t host) {
        const auto meter = LinkMeter::open(network.host(host));
        REQUIRE(meter);
        const auto bytes = meter.value().read();
        REQUIRE(bytes);
        return bytes.value().received / frame;
    }
};

}  // namespace

TEST_CASE("a byte takes the delay, there and back", "[network]") {
    const auto delay = GENERATE(0us, 25us, 1000us);
    auto settings = switched(3);
    settings.delay = delay;
    const Network network = built(settings);
    for (const std::size_t to : {std::size_t{1}, std::size_t{2}}) {
        const auto connection = connected(network, 0, to, 4000);
        for (int i = 0; i < 3; ++i) {
            const auto there = one_way(connection.from, connection.to);
            const auto back = one_way(connection.to, connection.from);
            CHECK(there >= delay);
            CHECK(there <= delay + clock_slack);
            CHECK(back >= delay);
            CHECK(back <= delay + clock_slack);
        }
    }
}

TEST_CASE("TCP gets what a link's rate leaves of it", "[network]") {
    const auto [rate, mtu] = GENERATE(
        table<Rate, unsigned>({{ten_gbit, 1500}, {ten_gbit, 9000}, {Rate{1'000'000'000}, 1500}}));
    auto settings = switched(2);
    settings.rate = rate;
    settings.mtu = mtu;
    const Network network = built(settings);
    const auto bulk = upload(network, 0, 1, 4000);
    std::this_thread::sleep_for(200ms);  // slow start
    // For so long that a GSO packet more or less, 64 KiB, is a tenth of what may be missing.
    const auto time = wire_time(3e8, rate, mtu);
    CHECK(goodput(time, bulk) == Approx(tcp_goodput(rate, mtu)).epsilon(0.002));
    CHECK(at_ports(network) == 0);
}

TEST_CASE("links are full duplex and do not share anything", "[network]") {
    const Network network = built(switched(4));
    const auto a = upload(network, 0, 1, 4000);
    const auto b = upload(network, 1, 0, 4000);
    const auto c = upload(network, 2, 3, 4000);
    std::this_thread::sleep_for(100ms);
    CHECK(goodput(100ms, c) == Approx(tcp_goodput(ten_gbit)).epsilon(0.002));
    // Acknowledgements wait behind the data of the other direction, which costs TCP some of it.
    CHECK(goodput(100ms, a, b) > 1.3 * tcp_goodput(ten_gbit));
}

TEST_CASE("two senders share the port of their receiver", "[network]") {
    const Network network = built(switched(3));
    const auto a = upload(network, 0, 2, 4000);
    const auto b = upload(network, 1, 2, 4001);
    std::this_thread::sleep_for(300ms);
    CHECK(goodput(300ms, a, b) == Approx(tcp_goodput(ten_gbit)).epsilon(0.01));
}

TEST_CASE("a port loses what its buffer cannot hold, and nothing else", "[network]") {
    // Two hosts send at the link's rate, one port drains at the rate: when both have sent COUNT
    // frames, it has sent COUNT, and the rest would be in its buffer.
    const auto buffer = GENERATE(500'000UL, 2'000'000UL);
    const auto queues = GENERATE(1U, 2U, 8U);
    constexpr std::size_t count = 2500;  // 3.8 MB
    const Network network = built(switched(3, {buffer, queues}));
    std::thread other([&] { Flood::send(network, 0, 2, count, 0); });
    Flood::send(network, 1, 2, count, 0);
    other.join();
    std::this_thread::sleep_for(1s);

    // All of them have the class selector 0: they get their queue's part of the buffer.
    const double room = static_cast<double>(buffer / std::min(queues, 3U)) / Flood::frame;
    const double lost = count - room;
    // The first ones of each host are a burst of the shaper, 72 KiB, and so is what the port sends.
    const double bursts = 3 * 72 * 1024 / static_cast<double>(Flood::frame);
    CHECK(static_cast<double>(at_ports(network)) == Approx(lost).margin(bursts));
    CHECK(Flood::received(network, 2) + at_ports(network) == 2 * count);
}

TEST_CASE("a queue of its own keeps urgent packets from waiting and from being lost", "[network]") {
    const auto queues = GENERATE(1U, 2U, 8U);
    const Network network = built(switched(4, {8'000'000, queues}));
    const auto urgent = connected(network, 0, 3, 4000, 56);
    const auto unmarked = connected(network, 0, 3, 4001, 0);
    // 3 MB too much for the port: 2.4 ms of it.
    std::thread flood([&] { Flood::send(network, 1, 3, 2000, 0); });
    Flood::send(network, 2, 3, 2000, 0);
    std::this_thread::sleep_for(100us);
    const auto quick = one_way(urgent.from, urgent.to);
    const auto slow = one_way(unmarked.from, unmarked.to);
    flood.join();
    if (queues == 1)
        CHECK(quick > 1ms);
    else
        CHECK(quick < 25us + 10us);
    // With one queue all have gone by then.
    if (queues > 1)
        CHECK(slow > 500us);
}

TEST_CASE("DSCPs go to queues by their class selector", "[network]") {
    CHECK(switch_queue_of(0, 1) == 0);
    CHECK(switch_queue_of(63, 1) == 0);
    CHECK(switch_queue_of(0, 2) == 1);
    CHECK(switch_queue_of(7, 2) == 1);
    CHECK(switch_queue_of(8, 2) == 0);
    CHECK(switch_queue_of(56, 2) == 0);
    for (unsigned selector = 0; selector < 8; ++selector)
        CHECK(switch_queue_of(selector << 3, 8) == 7 - selector);

    // Of two floods to one port, the one whose queue is served first loses nothing and waits for
    // nobody; the other gets the rest.
    const auto [first, second] = GENERATE(table<unsigned, unsigned>({{8, 0}, {56, 48}, {46, 34}}));
    const Network network = built(switched(3, {2'000'000, 8}));
    const auto before = upload(network, 0, 2, 4000, first);
    const auto behind = upload(network, 1, 2, 4001, second);
    std::this_thread::sleep_for(200ms);
    CHECK(goodput(200ms, before) > 0.98 * tcp_goodput(ten_gbit));
    CHECK(goodput(200ms, behind) < 0.02 * tcp_goodput(ten_gbit));
}

TEST_CASE("the rate of one host's link can change under traffic, both ways", "[network]") {
    const auto qdisc = GENERATE(as<std::string>{}, "pfifo limit 100", "fq", "mercury");
    const bool out = GENERATE(true, false);
    auto settings = switched(4);
    settings.qdisc = {qdisc};
    const Network network = built(settings);
    const auto changing = out ? upload(network, 0, 1, 4000) : upload(network, 1, 0, 4000);
    const auto elsewhere = upload(network, 2, 3, 4000);
    std::this_thread::sleep_for(200ms);
    for (const auto bits : {5'000'000'000UL, 20'000'000'000UL, 10'000'000'000UL}) {
        const auto changed = network.set_rate(0, Rate{bits});
        INFO((changed ? "" : changed.error().message));
        REQUIRE(changed);
        std::this_thread::sleep_for(300ms);
        // The other host's link keeps its rate.
        const double expected = tcp_goodput(Rate{std::min(bits, ten_gbit.bits_per_second)});
        CHECK(goodput(200ms, changing) == Approx(expected).epsilon(0.05));
        CHECK(goodput(200ms, elsewhere) == Approx(tcp_goodput(ten_gbit)).epsilon(0.02));
    }
    // tbf has not given its own limit to the qdisc below it.
    const auto shown = network.host(0).run<std::string>([] {
        return run_command({"tc", "qdisc", "show", "dev", "eth0"});
    });
    REQUIRE(shown);
    if (qdisc.starts_with("pfifo"))
        CHECK_THAT(shown.value(), Contains("limit 100p"));
}

TEST_CASE("a host's qdisc may be a tree with filters", "[network]") {
    auto settings = switched(2);
    settings.qdisc = {"prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                      "qdisc parent 10:1 pfifo limit 1000", "qdisc parent 10:2 fq_codel",
                      "filter parent 10: protocol ip basic match meta(nf_mark eq 0) flowid 10:2"};
    const Network network = built(settings);
    Endpoint endpoint;
    endpoint.address.sin_port = htons(4000);
    endpoint.mark = 1;
    auto marked = connect_hosts(network, 0, 1, endpoint);
    REQUIRE(marked);
    const Upload job(std::move(marked.value().from), std::move(marked.value().to));
    const auto other = upload(network, 0, 1, 4001);
    std::this_thread::sleep_for(200ms);
    CHECK(goodput(100ms, &job) > 0.98 * tcp_goodput(ten_gbit));
    CHECK(goodput(100ms, other) < 0.02 * tcp_goodput(ten_gbit));
}

TEST_CASE("nothing but the program's packets is on the links", "[network]") {
    const Network network = built(switched(3));
    std::this_thread::sleep_for(30s);
    for (std::size_t host = 0; host < 3; ++host) {
        const auto meter = LinkMeter::open(network.host(host));
        REQUIRE(meter);
        CHECK(meter.value().read().value().sent == 0);
        CHECK(meter.value().read().value().received == 0);
    }
}

TEST_CASE("a large network comes up, and goes away with its object", "[network]") {
    const Network network = built(switched(64, {2'000'000, 8}));
    const auto connection = connected(network, 63, 0, 4000);
    CHECK(one_way(connection.from, connection.to) <= 25us + clock_slack);
}

TEST_CASE("what tc refuses is quoted, line and all", "[network]") {
    auto settings = switched(2);
    settings.qdisc = {"nosuchqdisc limit 3"};
    const auto network = Network::build(settings);
    REQUIRE_FALSE(network);
    CHECK_THAT(network.error().message,
               Contains("qdisc add dev eth0 parent 1:1 handle 10: nosuchqdisc limit 3"));
    settings.qdisc = {"fq", "filter parent 99: matchall classid 1:1"};
    const auto filter = Network::build(settings);
    REQUIRE_FALSE(filter);
    CHECK_THAT(filter.error().message, Contains("filter add dev eth0 parent 99:"));
}
