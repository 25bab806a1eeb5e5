// SPDX-License-Identifier: MIT
//
// A whole daemon and clients that misbehave: each gets an error or is hung up on, nothing of
// anybody else changes, and no descriptor stays open.
#include <array>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "running_daemon.hpp"

using namespace mercury;
using namespace mercury::daemon;
using namespace mercury::hints;

namespace {

const std::string assign_0 = R"({"type":"assign","layer":0})";

/// Everything is as before when it goes away, whatever happened between.
class NothingStays {
  public:
    explicit NothingStays(RunningDaemon& daemon) : daemon_(daemon), before_(open_descriptors()) {}
    NothingStays(const NothingStays&) = delete;
    NothingStays& operator=(const NothingStays&) = delete;
    ~NothingStays() {
        // Fewer, if the daemon of the test before has still been closing what it had.
        CHECK(comes_true([this] { return open_descriptors() <= before_; }));
        CHECK(comes_true([this] {
            const Status status = daemon_.status();
            return status.clients == 0 && status.jobs.empty();
        }));
    }

  private:
    RunningDaemon& daemon_;
    std::size_t before_;
};

Fd pipe_end() {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    const Fd other(ends[1]);
    return Fd(ends[0]);
}

void fill(const Fd& socket) {
    const std::string bytes(1 << 16, 'x');
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
}

void make_linger(const Fd& socket, int seconds) {
    const struct linger option { 1, seconds };
    REQUIRE(setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &option, sizeof(option)) == 0);
}

/// One that has something to say is served at once.
void check_served(RunningDaemon& daemon) {
    Wire other(daemon);
    other.declare("other");
    CHECK(std::holds_alternative<Stepped>(other.ask(Step{})));
}

}  // namespace

TEST_CASE("a socket gets the mark and the priority of its class", "[daemon]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    wire.declare();
    const Fd socket = tcp_socket();
    CHECK(wire.ask(R"({"type":"assign","layer":3,"lowat":131072})", {socket.get()}) ==
          Answer(Assigned{1, 0x10002}));
    CHECK(mark_of(socket) == 0x10002);
    CHECK(priority_of(socket) == 2);
    int lowat = 0;
    socklen_t size = sizeof(lowat);
    getsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, &size);
    CHECK(lowat == 131072);
}

TEST_CASE("DSCP is set for both families, and before the priority", "[daemon]") {
    if (!can_mark())
        return;
    Settings settings;
    settings.dscp = {34, 10};
    RunningDaemon daemon(settings);
    Wire wire(daemon);
    wire.declare();
    const Fd four = tcp_socket();
    const Fd six(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    wire.ask(Assign{0, {}}, {four.get()});
    wire.ask(Assign{3, {}}, {six.get()});
    int tos = 0;
    socklen_t size = sizeof(tos);
    getsockopt(four.get(), IPPROTO_IP, IP_TOS, &tos, &size);
    CHECK(tos == 34 << 2);
    CHECK(priority_of(four) == 1);
    getsockopt(six.get(), IPPROTO_IPV6, IPV6_TCLASS, &tos, &size);
    CHECK(tos == 10 << 2);
    CHECK(priority_of(six) == 2);
}

TEST_CASE("UDP sockets and listening ones can be marked", "[daemon]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    Wire wire(daemon);
    wire.declare();
    const Fd datagrams(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    CHECK(std::holds_alternative<Assigned>(wire.ask(Assign{0, {}}, {datagrams.get()})));
    const Fd listener = tcp_socket();
    REQUIRE(listen(listener.get(), 1) == 0);
    CHECK(std::holds_alternative<Assigned>(wire.ask(Assign{0, {}}, {listener.get()})));
    CHECK(mark_of(listener) == 0x10001);
    CHECK(code_of(wire.ask(Assign{0, 65536}, {datagrams.get()})) == Code::Descriptor);
}

TEST_CASE("a socket with data underway keeps its mark", "[daemon]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    Wire wire(daemon);
    wire.declare();
    const auto [busy, peer] = tcp_pair();
    REQUIRE(std::holds_alternative<Assigned>(wire.ask(Assign{0, {}}, {busy.get()})));
    fill(busy);
    CHECK(code_of(wire.ask(Assign{3, {}}, {busy.get()})) == Code::Busy);
    CHECK(mark_of(busy) == 0x10001);
    CHECK(priority_of(busy) == 1);
    // To ask for what it has is no change.
    CHECK(std::holds_alternative<Assigned>(wire.ask(Assign{1, {}}, {busy.get()})));
}

// Descriptors that are none of ours --------------------------------------------------------------

struct Passed {
    const char* name;
    Fd (*make)();
};

TEST_CASE("what is no TCP or UDP socket is refused", "[daemon][hostile]") {
    const std::array<Passed, 18> all{{
        {"/dev/null", [] { return Fd(open("/dev/null", O_RDWR | O_CLOEXEC)); }},
        {"/dev/zero", [] { return Fd(open("/dev/zero", O_RDONLY | O_CLOEXEC)); }},
        {"a directory", [] { return Fd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }},
        {"a path only", [] { return Fd(open("/etc/passwd", O_PATH | O_CLOEXEC)); }},
        {"a file", [] { return Fd(open("/etc/passwd", O_RDONLY | O_CLOEXEC)); }},
        {"a file of proc", [] { return Fd(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)); }},
        {"a pipe", pipe_end},
        {"memory", [] { return Fd(memfd_create("x", MFD_CLOEXEC)); }},
        {"an eventfd", [] { return Fd(eventfd(0, EFD_CLOEXEC)); }},
        {"a timer", [] { return Fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)); }},
        {"signals",
         [] {
             sigset_t none;
             sigemptyset(&none);
             return Fd(signalfd(-1, &none, SFD_CLOEXEC));
         }},
        {"an epoll", [] { return Fd(epoll_create1(EPOLL_CLOEXEC)); }},
        {"a UNIX stream", [] { return Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }},
        {"a UNIX datagram", [] { return Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }},
        {"a UNIX seqpacket", [] { return Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }},
        {"netlink", [] { return Fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0)); }},
        {"a raw socket", [] { return Fd(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP)); }},
        {"a packet socket", [] { return Fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)); }},
    }};
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    wire.declare();
    for (const Passed& passed : all) {
        INFO(passed.name);
        const Fd fd = passed.make();
        if (!fd) {
            WARN("NOT TESTED: " << passed.name << ", which this user may not have");
            continue;
        }
        CHECK(code_of(wire.ask(assign_0, {fd.get()})) == Code::Descriptor);
    }
    CHECK(daemon.status().sockets == 0);
}

TEST_CASE("the client's own connection is refused as a socket", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    wire.declare();
    CHECK(code_of(wire.ask(assign_0, {wire.fd().get()})) == Code::Descriptor);
}

TEST_CASE("a connection that is passed to itself is closed all the same", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    {
        Wire wire(daemon);
        wire.declare();
        for (int i = 0; i < 20; ++i)
            wire.send(assign_0, {wire.fd().get()});
    }
    check_served(daemon);
}

TEST_CASE("a socket that was shut down or reset is no harm", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    wire.declare();
    auto [one_end, other_end] = tcp_pair();
    shutdown(one_end.get(), SHUT_RDWR);
    wire.ask(assign_0, {one_end.get()});
    make_linger(other_end, 0);
    other_end = Fd();  // resets the connection
    wire.ask(assign_0, {one_end.get()});
    check_served(daemon);
}

TEST_CASE("more than one descriptor is refused, and all are closed", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    wire.declare();
    const Fd socket = tcp_socket();
    for (const std::size_t count : {2U, 3U, 64U, 253U}) {
        INFO(count);
        REQUIRE(wire.send_many(assign_0, std::vector<int>(count, socket.get())));
        CHECK(code_of(wire.answer()) == Code::Descriptor);
    }
    CHECK(mark_of(socket) == 0);
}

TEST_CASE("an assign without a descriptor is refused", "[daemon][hostile]") {
    RunningDaemon daemon;
    Wire wire(daemon);
    wire.declare();
    CHECK(code_of(wire.ask(assign_0)) == Code::Descriptor);
}

TEST_CASE("descriptors with what is no assign are closed", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    const Fd socket = tcp_socket();
    const std::vector<int> many(100, socket.get());
    for (const char* const bytes :
         {R"({"type":"hello","version":1,"client":"x"})", R"({"type":"step"})", "nonsense", "{}",
          R"({"type":"status"})", R"({"type":"bye"})", R"({"type":"assign","layer":99999})"}) {
        INFO(bytes);
        REQUIRE(wire.send_many(bytes, many));
        CHECK(std::holds_alternative<Failure>(wire.answer()));
    }
    CHECK(mark_of(socket) == 0);
}

TEST_CASE("a flood of descriptors is closed as it comes", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    {
        std::vector<std::unique_ptr<Wire>> wires;
        for (int i = 0; i < 8; ++i)
            wires.push_back(std::make_unique<Wire>(daemon));
        const Fd socket = tcp_socket();
        const std::vector<int> many(253, socket.get());
        // The kernel's own bound of what is underway may come first.
        for (int i = 0; i < 20; ++i) {
            for (const auto& wire : wires)
                wire->send_many("x", many);
        }
        check_served(daemon);
    }
}

TEST_CASE("descriptors that nobody has read yet go with the connection", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    {
        Wire wire(daemon);
        const Fd socket = tcp_socket();
        for (int i = 0; i < 50; ++i)
            wire.send(assign_0, {socket.get()});
    }
    check_served(daemon);
}

// Descriptors that take their time ---------------------------------------------------------------

TEST_CASE("a socket that lingers when it is closed keeps nobody else waiting",
          "[daemon][hostile]") {
    RunningDaemon daemon;
    Wire hostile(daemon);
    hostile.declare();
    auto [socket, peer] = tcp_pair();
    fill(socket);
    make_linger(socket, 3600);
    // In its own thread, so that it cannot have closed it before: or this test would linger.
    daemon.in_thread([&](Daemon& /*daemon*/, netlink::FakeKernel& /*kernel*/) {
        hostile.send(assign_0, {socket.get()});
        socket = Fd();  // now the daemon has the last one
    });
    for (int i = 0; i < 20; ++i)
        CHECK_FALSE(daemon.status().daemon.empty());
    peer = Fd();  // unread data: a reset, which ends the waiting
    CHECK(std::holds_alternative<Failure>(hostile.answer()));
}

TEST_CASE("a lingering socket in a connection that is closed keeps nobody else waiting",
          "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    auto [socket, peer] = tcp_pair();
    {
        Wire hostile(daemon);
        fill(socket);
        make_linger(socket, 3600);
        daemon.in_thread([&](Daemon& /*daemon*/, netlink::FakeKernel& /*kernel*/) {
            for (int i = 0; i < 10; ++i)
                hostile.send("nonsense", {socket.get()});
            socket = Fd();
        });
    }
    for (int i = 0; i < 20; ++i)
        CHECK_FALSE(daemon.status().daemon.empty());
    peer = Fd();
}

// Messages ---------------------------------------------------------------------------------------

TEST_CASE("messages that are too long are refused, and the next one is heard",
          "[daemon][hostile]") {
    RunningDaemon daemon;
    Wire wire(daemon);
    for (const std::size_t size :
         {message_bytes_max + 1, std::size_t{200'000}, std::size_t{1} << 20}) {
        INFO(size);
        if (!wire.send(std::string(size, ' '))) {
            WARN("NOT TESTED: a message of " << size << " bytes, which this user may not send");
            continue;
        }
        CHECK(code_of(wire.answer()) == Code::Malformed);
    }
    wire.declare();
}

TEST_CASE("an empty packet is the end", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    REQUIRE(wire.send(""));
    CHECK(wire.receive().empty());
}

TEST_CASE("nonsense is answered, each time, and hurts nobody", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire hostile(daemon);
    std::uint64_t random = 42;
    for (int i = 0; i < 2000; ++i) {
        std::string bytes;
        for (std::uint64_t n = 0; n < 1 + random % 200; ++n) {
            random = random * 6364136223846793005ULL + 1442695040888963407ULL;
            bytes += static_cast<char>(random >> 56);
        }
        CHECK(std::holds_alternative<Failure>(hostile.ask(bytes)));
    }
    check_served(daemon);
}

TEST_CASE("who does not read its answers is heard no more, and others are", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    {
        Wire deaf(daemon);
        int sent = 0;
        while (sent < 100'000 && ::send(deaf.fd().get(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
            ++sent;
        CHECK(sent < 100'000);
        check_served(daemon);
        // What it then reads is all there, and in order.
        for (int i = 0; i < sent; ++i)
            CHECK(code_of(deaf.answer()) == Code::Malformed);
    }
}

TEST_CASE("who sends too fast is read more slowly, and loses nothing", "[daemon][hostile]") {
    Settings settings;
    settings.limits.messages = 200;
    RunningDaemon daemon(settings);
    Wire wire(daemon);
    for (int i = 0; i < 300; ++i)
        REQUIRE(std::holds_alternative<Failure>(wire.ask("x")));
    check_served(daemon);
}

TEST_CASE("a client that dies in the middle leaves nothing", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    for (int i = 0; i < 50; ++i) {
        Wire wire(daemon);
        const Fd socket = tcp_socket();
        wire.send(encode(Request(Hello{1, "test"})));
        if (i % 2 == 0)
            wire.send(encode(Request(four_layers("job " + std::to_string(i % 3)))));
        wire.send(assign_0, {socket.get()});
    }
}

TEST_CASE("half-closed connections are served to the end", "[daemon][hostile]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    Wire wire(daemon);
    wire.send(encode(Request(Hello{1, "test"})));
    shutdown(wire.fd().get(), SHUT_WR);
    CHECK(std::holds_alternative<Welcome>(wire.answer()));
    CHECK(wire.receive().empty());
}

// Limits -----------------------------------------------------------------------------------------

TEST_CASE("clients are limited, and said so", "[daemon][hostile]") {
    Settings settings;
    settings.limits.clients = 3;
    RunningDaemon daemon(settings);
    const NothingStays nothing(daemon);
    std::vector<std::unique_ptr<Wire>> wires;
    for (int i = 0; i < 3; ++i) {
        wires.push_back(std::make_unique<Wire>(daemon));
        wires.back()->declare();
    }
    {
        Wire fourth(daemon);
        CHECK(code_of(fourth.answer()) == Code::Limit);
        CHECK(fourth.receive().empty());
    }
    wires.pop_back();
    eventually([&] { return daemon.status().clients == 2; });
    Wire again(daemon);
    again.declare();
}

TEST_CASE("jobs, layers and sockets are limited", "[daemon][hostile]") {
    if (!can_mark())
        return;
    Settings settings;
    settings.limits.jobs = 1;
    settings.limits.layers = 12;
    settings.limits.sockets = 2;
    RunningDaemon daemon(settings);
    Wire first(daemon);
    first.declare("one");
    Wire second(daemon);
    second.ask(Hello{1, "test"});
    CHECK(code_of(second.ask(four_layers("two"))) == Code::Limit);
    second.ask(four_layers("one"));
    Wire third(daemon);
    third.declare("one");
    Wire fourth(daemon);
    fourth.ask(Hello{1, "test"});
    CHECK(code_of(fourth.ask(four_layers("one"))) == Code::Limit);

    const Fd a = tcp_socket();
    const Fd b = tcp_socket();
    const Fd c = tcp_socket();
    CHECK(std::holds_alternative<Assigned>(first.ask(Assign{0, {}}, {a.get()})));
    CHECK(std::holds_alternative<Assigned>(third.ask(Assign{0, {}}, {b.get()})));
    CHECK(code_of(second.ask(Assign{0, {}}, {c.get()})) == Code::Limit);
    CHECK(mark_of(c) == 0);
}

TEST_CASE("a job ends with its last client, and its number is free", "[daemon]") {
    RunningDaemon daemon;
    {
        Wire first(daemon);
        Wire second(daemon);
        CHECK(first.declare().number == 1);
        CHECK(second.declare().number == 1);
        CHECK(code_of(first.ask(Hello{1, "again"})) == Code::Order);
        CHECK(std::holds_alternative<Goodbye>(first.ask(Bye{})));
        CHECK(first.receive().empty());
        CHECK(daemon.status().jobs.size() == 1);
    }
    eventually([&] { return daemon.status().jobs.empty(); });
}

TEST_CASE("deadlines of a job are in the kernel while it lives", "[daemon]") {
    RunningDaemon daemon;
    daemon.in_thread([](Daemon& /*daemon*/, netlink::FakeKernel& kernel) {
        kernel.put(netlink::Link{1, "eth0", "veth", true, false, 1500, 1});
        netlink::Qdisc qdisc;
        qdisc.ifindex = 1;
        qdisc.kind = "mercury";
        qdisc.handle = {0x10000};
        qdisc.parent = netlink::root;
        qdisc.options = netlink::MercuryOptions{};
        qdisc.options->jobs = 16;
        qdisc.options->bands = 64;
        kernel.put(qdisc);
    });
    const auto deadline = [&daemon] {
        std::optional<netlink::Time> time;
        daemon.in_thread([&](Daemon& /*daemon*/, netlink::FakeKernel& kernel) {
            time = kernel.deadline(1, {0x10000}, 1, 1);
        });
        return time;
    };
    {
        Wire wire(daemon);
        wire.declare();
        eventually([&] { return deadline() == netlink::Time(std::chrono::milliseconds(6)); });
    }
    eventually([&] { return deadline() == netlink::Time(MERCURY_DEADLINE_DEFAULT); });
}

TEST_CASE("a status that no message has room for says what it leaves out", "[daemon]") {
    RunningDaemon daemon;
    daemon.in_thread([](Daemon& /*daemon*/, netlink::FakeKernel& kernel) {
        for (int i = 1; i <= 3000; ++i) {
            kernel.put(netlink::Link{i, "a-rather-long-name-" + std::to_string(i), "veth", true,
                                     false, 1500, 1});
            netlink::Qdisc qdisc;
            qdisc.ifindex = i;
            qdisc.kind = "mercury";
            qdisc.handle = {0x10000};
            qdisc.parent = netlink::root;
            qdisc.options = netlink::MercuryOptions{};
            kernel.put(qdisc);
        }
    });
    eventually([&] { return daemon.status().left_out > 0; });
    Wire wire(daemon);
    wire.declare();
    const auto answer = wire.ask(QueryStatus{});
    REQUIRE(std::holds_alternative<Status>(answer));
    const auto& status = std::get<Status>(answer);
    CHECK(status.left_out + status.devices.size() + status.jobs.size() == 3001);
}

TEST_CASE("two hundred clients at once", "[daemon]") {
    RunningDaemon daemon;
    const NothingStays nothing(daemon);
    std::vector<std::unique_ptr<Wire>> wires;
    for (int i = 0; i < 200; ++i) {
        wires.push_back(std::make_unique<Wire>(daemon));
        wires.back()->declare("job " + std::to_string(i % 8));
    }
    CHECK(daemon.status().clients == 200);
    CHECK(daemon.status().jobs.size() == 8);
    for (const auto& wire : wires)
        CHECK(std::holds_alternative<Stepped>(wire->ask(Step{})));
}
