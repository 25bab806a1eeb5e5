// SPDX-License-Identifier: MIT
//
// libmercury, through its C interface, with a daemon, without one, and with one that comes and
// goes.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hints/mercury.h"
#include "hints/mercury.hpp"
#include "hints/message_socket.hpp"
#include "running_daemon.hpp"

using namespace mercury;
using namespace mercury::daemon;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

const std::vector<mercury_layer> layers{{"a", 100, 1'000'000, 2'000'000},
                                        {"b", 100, 1'000'000, 2'000'000},
                                        {"c", 100, 1'000'000, 2'000'000},
                                        {"d", 100, 1'000'000, 2'000'000}};

void fill(const Fd& socket) {
    const std::string bytes(1 << 16, 'x');
    while (send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
}

void drain(const Fd& socket) {
    std::string bytes(1 << 16, '\0');
    while (recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
}

/// Calls again and again, as a program does in each iteration.
void step_until(HintClient& client, const std::function<bool()>& condition) {
    eventually([&] {
        client.step();
        client.dispatch(1ms);
        return condition();
    });
}

/// Something that listens where a daemon would, and is none.
class Impostor {
  public:
    explicit Impostor(const std::string& path) : listener_(std::move(listen_at(path)).value()) {
        fcntl(listener_.get(), F_SETFL, 0);
    }
    /// Accepts one client and answers each message with what ANSWERS says, then hangs up.
    void serve(const std::vector<std::string>& answers) {
        const Fd client(accept(listener_.get(), nullptr, nullptr));
        std::string bytes(hints::message_bytes_max, '\0');
        for (const std::string& answer : answers) {
            if (recv(client.get(), bytes.data(), bytes.size(), 0) <= 0)
                return;
            send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        }
    }

  private:
    Fd listener_;
};

std::string some_path() {
    static std::atomic<int> count{0};
    return "/tmp/mercury-client-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

}  // namespace

TEST_CASE("without a daemon sockets get a priority, and the status says why", "[client]") {
    HintClient client("/nowhere/hints.sock");
    CHECK(client.job("net", layers, 2) == MERCURY_FALLBACK);
    CHECK(client.classes() == 2);
    CHECK(client.class_of(1) == std::size_t{0});
    CHECK(client.class_of(2) == std::size_t{1});
    const Fd first = tcp_socket();
    const Fd second = tcp_socket();
    CHECK(client.assign(first.get(), 0, 65536) == MERCURY_FALLBACK);
    CHECK(client.assign(second.get(), 3) == MERCURY_FALLBACK);
    CHECK(priority_of(first) == 1);
    CHECK(priority_of(second) == 2);
    CHECK(mark_of(first) == 0);
    CHECK(client.step() == MERCURY_FALLBACK);
    CHECK(client.dispatch() == MERCURY_FALLBACK);
    CHECK(client.fd() == -1);
    CHECK(client.events() == 0);
    const auto status = client.status();
    CHECK(status.state == MERCURY_STATE_FALLBACK);
    CHECK(status.sockets == 2);
    CHECK(status.marked == 0);
    CHECK_THAT(status.why, Contains("/nowhere/hints.sock") && Contains("No such file"));
}

TEST_CASE("more classes than priorities share them with their neighbours", "[client]") {
    HintClient client("/nowhere/hints.sock");
    const std::vector<mercury_layer> twelve(12, {"a", 1, 0, 0});
    client.job("net", twelve, 12);
    REQUIRE(client.classes() == 12);
    for (std::size_t layer = 0; layer < twelve.size(); ++layer) {
        const Fd socket = tcp_socket();
        client.assign(socket.get(), layer);
        CHECK(priority_of(socket) == static_cast<int>(1 + layer / 2));
    }
}

TEST_CASE("with a daemon sockets are marked", "[client]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    HintClient client(daemon.path());
    CHECK(client.job("net", layers, 2) == MERCURY_DONE);
    CHECK(client.status().state == MERCURY_STATE_CONNECTED);
    CHECK(client.status().job == 1);
    CHECK(std::string(client.status().why).empty());
    const Fd socket = tcp_socket();
    CHECK(client.assign(socket.get(), 3, 65536) == MERCURY_DONE);
    CHECK(mark_of(socket) == 0x10002);
    CHECK(priority_of(socket) == 2);
    CHECK(client.status().marked == 1);
    for (int i = 0; i < 10; ++i)
        CHECK(client.step() == MERCURY_DONE);
    CHECK(client.dispatch(10s) == MERCURY_DONE);
    CHECK(daemon.status().jobs.at(0).steps == 10);
}

TEST_CASE("a call that must not wait is answered later", "[client]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    HintClient client(daemon.path());
    client.set_timeout(0ms);
    CHECK(client.job("net", layers, 2) == MERCURY_PENDING);
    CHECK(client.classes() == 2);  // planned here, until the daemon has
    const Fd socket = tcp_socket();
    CHECK(client.assign(socket.get(), 3) == MERCURY_PENDING);
    CHECK(priority_of(socket) == 2);
    eventually([&] {
        pollfd waiting{client.fd(), client.events(), 0};
        poll(&waiting, 1, 100);
        return client.dispatch() == MERCURY_DONE;
    });
    CHECK(mark_of(socket) == 0x10002);
}

TEST_CASE("arguments that make no sense are refused, and change nothing", "[client][hostile]") {
    RunningDaemon daemon;
    HintClient client(daemon.path());
    const Fd socket = tcp_socket();
    CHECK(client.assign(socket.get(), 0) == MERCURY_ERROR_ORDER);
    CHECK(client.step() == MERCURY_ERROR_ORDER);
    CHECK(client.dispatch() == MERCURY_ERROR_ORDER);

    CHECK(mercury_client_job(nullptr, "a", layers.data(), 4, 2) == MERCURY_ERROR_ARGUMENT);
    CHECK(mercury_client_job(client.get(), nullptr, layers.data(), 4, 2) == MERCURY_ERROR_ARGUMENT);
    CHECK(mercury_client_job(client.get(), "a", nullptr, 4, 2) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("", layers, 2) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a\nb", layers, 2) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job(std::string(129, 'x'), layers, 2) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", {}, 2) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", layers, 0) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", layers, 33) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", {{nullptr, 1, 0, 0}}, 1) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", {{"", 1, 0, 0}}, 1) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", {{"l", 0, 0, 0}}, 1) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", {{"l", UINT64_MAX, 0, 0}}, 1) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", {{"l", 1, UINT64_MAX, 0}}, 1) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.job("a", std::vector<mercury_layer>(1025, {"l", 1, 0, 0}), 1) ==
          MERCURY_ERROR_ARGUMENT);
    CHECK(client.classes() == 0);

    REQUIRE(client.job("net", layers, 2) == MERCURY_DONE);
    CHECK(client.assign(socket.get(), 4) == MERCURY_ERROR_ARGUMENT);
    CHECK_THAT(client.error(), Contains("4 layers"));
    CHECK(client.assign(socket.get(), 0, UINT32_MAX) == MERCURY_ERROR_ARGUMENT);
    CHECK(client.assign(-1, 0) == MERCURY_ERROR_SOCKET);
    CHECK(client.assign(STDERR_FILENO, 0) == MERCURY_ERROR_SOCKET);
    CHECK(client.assign(client.fd(), 0) == MERCURY_ERROR_SOCKET);
    CHECK(priority_of(socket) == 0);
    CHECK_FALSE(client.class_of(4));
    CHECK(mercury_client_class_of(nullptr, 0) == MERCURY_ERROR_ARGUMENT);
    CHECK(mercury_client_status(client.get(), nullptr, 8) == MERCURY_ERROR_ARGUMENT);
    mercury_client_free(nullptr);
}

TEST_CASE("a program that knows less of the status than the library gets what it knows",
          "[client]") {
    HintClient client("/nowhere");
    client.job("net", layers, 2);
    mercury_status status{};
    std::memset(&status, 0x55, sizeof(status));
    CHECK(mercury_client_status(client.get(), &status, sizeof(status.state)) == MERCURY_DONE);
    CHECK(status.state == MERCURY_STATE_FALLBACK);
    CHECK(status.classes == static_cast<std::size_t>(0x5555555555555555));
}

TEST_CASE("a busy socket is refused and keeps what it has", "[client]") {
    HintClient client("/nowhere");
    client.job("net", layers, 2);
    const auto [busy, peer] = tcp_pair();
    REQUIRE(client.assign(busy.get(), 0) == MERCURY_FALLBACK);
    fill(busy);
    CHECK(client.assign(busy.get(), 3) == MERCURY_ERROR_BUSY);
    CHECK(priority_of(busy) == 1);
    CHECK(client.assign(busy.get(), 1) == MERCURY_FALLBACK);  // the same class
}

TEST_CASE("a daemon that comes later hears everything", "[client]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    daemon.stop();
    HintClient client(daemon.path());
    CHECK(client.job("net", layers, 2) == MERCURY_FALLBACK);
    const Fd socket = tcp_socket();
    CHECK(client.assign(socket.get(), 3) == MERCURY_FALLBACK);
    daemon.start();
    step_until(client, [&] { return client.status().marked == 1; });
    CHECK(mark_of(socket) == 0x10002);
    CHECK(client.status().state == MERCURY_STATE_CONNECTED);
}

TEST_CASE("a daemon that is restarted gives the job its number, and busy sockets are left in peace",
          "[client]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    HintClient other(daemon.path());
    other.job("other", layers, 2);
    HintClient client(daemon.path());
    REQUIRE(client.job("net", layers, 2) == MERCURY_DONE);
    CHECK(client.status().job == 2);
    const auto [busy, peer] = tcp_pair();
    REQUIRE(client.assign(busy.get(), 3) == MERCURY_DONE);
    fill(busy);
    daemon.restart();
    // This one comes first, and would have got number 1.
    step_until(client, [&] { return client.status().state == MERCURY_STATE_CONNECTED; });
    CHECK(client.status().job == 2);
    CHECK(mark_of(busy) == 0x20002);
    CHECK(client.status().marked == 1);
    CHECK(daemon.status().sockets == 0);  // nothing had to be marked
}

TEST_CASE("if its number is taken a job gets another, and busy sockets follow when they are idle",
          "[client]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    HintClient client(daemon.path());
    REQUIRE(client.job("net", layers, 2) == MERCURY_DONE);
    const Fd idle = tcp_socket();
    const auto [busy, peer] = tcp_pair();
    client.assign(idle.get(), 0);
    client.assign(busy.get(), 3);
    fill(busy);
    daemon.restart();
    HintClient thief(daemon.path());
    REQUIRE(thief.job("thief", layers, 2) == MERCURY_DONE);
    REQUIRE(thief.status().job == 1);

    step_until(client, [&] { return mark_of(idle) == 0x20001; });
    CHECK(mark_of(busy) == 0x10002);
    step_until(client, [&] {
        drain(peer);
        return client.status().marked == 2;
    });
    CHECK(mark_of(busy) == 0x20002);
}

TEST_CASE("a descriptor that is something else now is not marked", "[client]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    daemon.stop();
    HintClient client(daemon.path());
    client.job("net", layers, 2);
    Fd socket = tcp_socket();
    const int number = socket.get();
    client.assign(number, 3);
    socket = Fd();
    const Fd innocent = tcp_socket();
    REQUIRE(innocent.get() == number);
    daemon.start();
    step_until(client, [&] { return client.status().sockets == 0; });
    CHECK(mark_of(innocent) == 0);
}

TEST_CASE("a job can be declared again, and its sockets follow", "[client]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    HintClient client(daemon.path());
    client.job("net", layers, 2);
    const Fd socket = tcp_socket();
    client.assign(socket.get(), 3);
    CHECK(client.job("net", layers, 1) == MERCURY_DONE);
    CHECK(client.classes() == 1);
    step_until(client, [&] { return mark_of(socket) == 0x10001; });
    CHECK(daemon.status().jobs.size() == 1);
}

TEST_CASE("what the daemon refuses is said, and the priority stays", "[client]") {
    if (!can_mark())
        return;
    Settings settings;
    settings.limits.jobs = 1;
    settings.limits.sockets = 1;
    RunningDaemon daemon(settings);
    HintClient client(daemon.path());
    REQUIRE(client.job("net", layers, 2) == MERCURY_DONE);
    const Fd first = tcp_socket();
    const Fd second = tcp_socket();
    CHECK(client.assign(first.get(), 0) == MERCURY_DONE);
    CHECK(client.assign(second.get(), 0) == MERCURY_ERROR_REFUSED);
    CHECK_THAT(client.error(), Contains("as many as are allowed"));
    CHECK(priority_of(second) == 1);

    HintClient another(daemon.path());
    CHECK(another.job("another", layers, 2) == MERCURY_FALLBACK);
    CHECK_THAT(another.status().why, Contains("as many as are allowed"));
}

TEST_CASE("what answers like no daemon is left", "[client][hostile]") {
    const std::string welcome = R"({"type":"hello","version":1,"daemon":"x"})";
    const auto [name, answers, why] = GENERATE_COPY(
        std::make_tuple("hangs up", std::vector<std::string>{}, "hung up"),
        std::make_tuple("nonsense", std::vector<std::string>{"nonsense"}, "protocol"),
        std::make_tuple("another version",
                        std::vector<std::string>{
                            R"({"type":"error","code":"version","message":"no","versions":[2]})"},
                        "refuses: no"),
        std::make_tuple("another answer", std::vector<std::string>{R"({"type":"step"})"},
                        "something else"),
        std::make_tuple(
            "classes that are not the layers",
            std::vector<std::string>{
                welcome,
                R"({"type":"job","number":1,"classes":[{"first":0,"last":7,"mark":1,"priority":1}]})"},
            "not the layers"),
        std::make_tuple(
            "classes with a hole",
            std::vector<std::string>{
                welcome,
                R"({"type":"job","number":1,"classes":[{"first":1,"last":3,"mark":1,"priority":1}]})"},
            "not the layers"),
        std::make_tuple("a message that is too long",
                        std::vector<std::string>{std::string(hints::message_bytes_max + 1, ' ')},
                        "protocol"));
    INFO(name);
    const std::string path = some_path();
    Impostor impostor(path);
    std::thread server([&impostor, &answers = answers] { impostor.serve(answers); });
    HintClient client(path);
    client.set_timeout(20s);
    CHECK(client.job("net", layers, 2) == MERCURY_FALLBACK);
    CHECK_THAT(client.status().why, Contains(why));
    server.join();
    unlink(path.c_str());
    const Fd socket = tcp_socket();
    CHECK(client.assign(socket.get(), 3) == MERCURY_FALLBACK);
    CHECK(priority_of(socket) == 2);
}

TEST_CASE("an option that the kernel has not is passed over", "[client]") {
    const std::string path = some_path();
    Impostor impostor(path);
    std::thread server([&impostor] {
        impostor.serve({R"({"type":"hello","version":1,"daemon":"x"})",
                        R"({"type":"job","number":1,"setsockopt":true,"classes":[)"
                        R"({"first":0,"last":3,"mark":65537,"priority":1}]})",
                        R"({"type":"assign","class":0,"mark":65537})"});
    });
    HintClient client(path);
    client.set_timeout(20s);
    CHECK(client.job("net", layers, 1) == MERCURY_DONE);
    const Fd socket = tcp_socket();
    CHECK(client.assign(socket.get(), 3) == MERCURY_DONE);
    CHECK(client.status().marked == 1);
    server.join();
    unlink(path.c_str());
}

TEST_CASE("a daemon that does not answer is waited for once", "[client][hostile]") {
    const std::string path = some_path();
    const Impostor silent(path);
    HintClient client(path);
    client.set_timeout(50ms);
    CHECK(client.job("net", layers, 2) == MERCURY_PENDING);
    CHECK(client.status().state == MERCURY_STATE_FALLBACK);
    // From here on nothing waits, or 1000 of these would take most of a minute.
    const auto begin = Clock::now();
    for (int i = 0; i < 1000; ++i) {
        const Fd socket = tcp_socket();
        CHECK(client.assign(socket.get(), 3) == MERCURY_PENDING);
        CHECK(priority_of(socket) == 2);
        client.step();
    }
    CHECK(Clock::now() - begin < 1000 * 50ms / 2);
    unlink(path.c_str());
}

TEST_CASE("a child after fork is refused and does not say goodbye for its parent", "[client]") {
    RunningDaemon daemon;
    HintClient client(daemon.path());
    REQUIRE(client.job("net", layers, 2) == MERCURY_DONE);
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = client.step() == MERCURY_ERROR_FORKED &&
                             client.job("net", layers, 2) == MERCURY_ERROR_FORKED;
        mercury_client* const raw = client.get();
        mercury_client_free(raw);
        _exit(refused ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(client.step() == MERCURY_DONE);
    CHECK(client.dispatch(10s) == MERCURY_DONE);
    CHECK(daemon.status().jobs.size() == 1);
}

TEST_CASE("the client's descriptors are closed, and its job ends with it", "[client]") {
    RunningDaemon daemon;
    const std::size_t before = open_descriptors();
    {
        HintClient client(daemon.path());
        client.job("net", layers, 2);
        for (int i = 0; i < 100; ++i) {
            const Fd socket = tcp_socket();
            client.assign(socket.get(), 3);
        }
    }
    eventually([&] { return open_descriptors() <= before && daemon.status().jobs.empty(); });
}

TEST_CASE("the path comes from the environment", "[client]") {
    setenv("MERCURY_SOCKET", "/from/the/environment", 1);
    HintClient client;
    unsetenv("MERCURY_SOCKET");
    client.job("net", layers, 2);
    CHECK_THAT(client.status().why, Contains("/from/the/environment"));
    HintClient usual;
    usual.job("net", layers, 2);
    HintClient too_long(std::string(500, 'x'));
    too_long.job("net", layers, 2);
    CHECK_THAT(too_long.status().why, Contains("107 bytes"));
}
