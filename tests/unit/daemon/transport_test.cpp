// SPDX-License-Identifier: MIT
//
// Push-pull between a worker and a server whose connections mercuryd marks, or does not.
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "daemon/daemon.hpp"
#include "push_pull/world.hpp"
#include "running_daemon.hpp"
#include "transport/wire.hpp"

using namespace mercury;
using namespace mercury::daemon;
using namespace mercury::transport;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

const std::vector<Tensor> tensors{{"first", ElementType::f32, 100, 0, Reduction::sum},
                                  {"second", ElementType::f32, 100, 1, Reduction::sum}};

/// The port at both ends of FD; 0 where it is not connected.
std::pair<in_port_t, in_port_t> ports_of(int fd) {
    sockaddr_in own{};
    sockaddr_in peer{};
    socklen_t size = sizeof(own);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 || own.sin_family != AF_INET)
        return {};
    size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0)
        return {};
    return {ntohs(own.sin_port), ntohs(peer.sin_port)};
}

/// Of two classes: pulls in bands 0 and 1, pushes in 2 and 3; what the worker sends in its control
/// connection goes with the first pushes, and acknowledgements of pulls with the pushes of their
/// class. The server's control connection and its acknowledgements have no mark.
std::map<std::uint32_t, int> marks_of_job(std::uint32_t job) {
    return {{0, 3}, {job << 16 | 1, 1}, {job << 16 | 2, 1}, {job << 16 | 3, 3}, {job << 16 | 4, 2}};
}

/// A server, which keeps its log, and a worker of it.
class Peers {
  public:
    /// HINTS is where both look for the daemon.
    explicit Peers(const std::string& hints) {
        ServerOptions options;
        options.hints = hints;
        options.log = [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            log_ += line + "\n";
        };
        world_ = std::make_unique<World>(1, std::move(options));
        options_ = world_->options(0, 1);
        options_.hints = hints;
    }

    WorkerOptions& options() { return options_; }
    void join() {
        auto joined = Worker::join(options_, tensors);
        REQUIRE(joined);
        worker_ = std::move(joined).value();
    }
    Worker& worker() { return *worker_; }
    MarkingStatus marking() const { return worker_->marking(); }

    void round() {
        std::vector<Worker::Ticket> tickets;
        std::vector<std::vector<float>> buffers(tensors.size(), std::vector<float>(100, 1.5F));
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            auto ticket = worker_->push_pull(i, std::as_writable_bytes(std::span(buffers[i])));
            REQUIRE(ticket);
            tickets.push_back(ticket.value());
        }
        for (const auto& ticket : tickets)
            REQUIRE(worker_->wait(ticket));
        REQUIRE(buffers[0][99] == 1.5F);
    }
    /// How many of the job's sockets, at either end, have each value of OPTION.
    std::map<std::uint32_t, int> connections_by(int option) const {
        const std::string& server = options_.servers.at(0);
        const auto port = static_cast<in_port_t>(std::stoi(server.substr(server.rfind(':') + 1)));
        std::map<std::uint32_t, int> found;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            const int fd = std::stoi(entry.path().filename());
            const auto [own, peer] = ports_of(fd);
            if (own != port && peer != port)
                continue;
            std::uint32_t value = 0;
            socklen_t size = sizeof(value);
            REQUIRE(getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0);
            ++found[value];
        }
        return found;
    }
    /// Round after round, as a program goes on.
    void train_until(const std::function<bool()>& condition) {
        eventually([&] {
            round();
            return condition();
        });
    }
    std::string log() {
        const std::lock_guard lock(mutex_);
        return log_;
    }

  private:
    std::mutex mutex_;
    std::string log_;
    std::unique_ptr<World> world_;
    WorkerOptions options_;
    std::unique_ptr<Worker> worker_;
};

}  // namespace

TEST_CASE("push-pull: mercuryd marks both ends, each way and class by itself", "[transport]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    Peers peers(daemon.path());
    peers.join();
    // The worker waits for its marks before the first byte.
    CHECK(peers.marking() == MarkingStatus{MarkedBy::daemon, 1, 5, 5, ""});
    peers.train_until([&] { return peers.connections_by(SO_MARK) == marks_of_job(1); });
    CHECK(peers.connections_by(SO_PRIORITY) ==
          std::map<std::uint32_t, int>{{0, 3}, {1, 1}, {2, 1}, {3, 3}, {4, 2}});
    CHECK_THAT(peers.log(), Contains("job \"test\" is marked by mercuryd, as its job 1"));

    const auto job = daemon.status().jobs.at(0);
    CHECK(job.name == "test");
    CHECK(job.clients == 2);
    std::vector<std::size_t> sockets;
    for (const auto& one : job.classes)
        sockets.push_back(one.sockets);
    CHECK(sockets == std::vector<std::size_t>{1, 1, 3, 2});
}

TEST_CASE("push-pull: both ends tell the daemon of each iteration", "[transport]") {
    RunningDaemon daemon;
    Peers peers(daemon.path());
    peers.join();
    for (int i = 0; i < 5; ++i)
        peers.round();
    // The server may have told of the first before the daemon knew its job.
    const auto steps = daemon.status().jobs.at(0).steps;
    CHECK(steps >= 9);
    CHECK(steps <= 10);
}

TEST_CASE("push-pull: without a daemon there are priorities, and both ends say so", "[transport]") {
    Peers peers("/nowhere/hints.sock");
    peers.join();
    const auto marking = peers.marking();
    CHECK(marking.by == MarkedBy::priority);
    CHECK(marking.connections == 5);
    CHECK(marking.marked == 0);
    CHECK_THAT(marking.why, Contains("/nowhere/hints.sock") && Contains("No such file"));
    peers.round();
    CHECK(peers.connections_by(SO_PRIORITY) ==
          std::map<std::uint32_t, int>{{0, 3}, {1, 1}, {2, 1}, {3, 3}, {4, 2}});
    CHECK_THAT(peers.log(), Contains("job \"test\" has SO_PRIORITY only: no daemon at /nowhere/"));
}

TEST_CASE("push-pull: a daemon that goes and comes back, or comes late", "[transport]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    const bool late = GENERATE(false, true);
    if (late)
        daemon.stop();
    Peers peers(daemon.path());
    peers.join();
    if (!late) {
        peers.round();
        daemon.stop();
    }
    peers.train_until([&] { return peers.marking().by == MarkedBy::priority; });
    peers.train_until([&] { return peers.log().find("SO_PRIORITY only") != std::string::npos; });
    daemon.start();
    peers.train_until([&] {
        const auto now = peers.marking();
        return now.by == MarkedBy::daemon && now.marked == 5;
    });
    peers.train_until([&] { return peers.connections_by(SO_MARK) == marks_of_job(1); });
}

TEST_CASE("push-pull: another number after a restart is on every connection", "[transport]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    Peers peers(daemon.path());
    peers.join();
    peers.train_until([&] { return peers.connections_by(SO_MARK) == marks_of_job(1); });
    daemon.restart();
    Wire other(daemon);  // takes number 1 before the job is back
    REQUIRE(other.declare("quicker").number == 1);
    peers.train_until([&] { return peers.connections_by(SO_MARK) == marks_of_job(2); });
    CHECK(peers.marking().job == 2);
}

TEST_CASE("push-pull: a daemon that does not answer delays nothing but joining", "[transport]") {
    const std::string path = "/tmp/mercury-hung-" + std::to_string(getpid());
    const auto listener = daemon::listen_at(path);  // and nobody ever accepts
    REQUIRE(listener);
    Peers peers(path);
    peers.join();
    for (int i = 0; i < 100; ++i)
        peers.round();
    CHECK(peers.marking().by == MarkedBy::priority);
    CHECK(peers.marking().why == "the daemon has not answered yet");
    CHECK_THAT(peers.log(), Contains("SO_PRIORITY only: the daemon has not answered yet"));
    std::filesystem::remove(path);
}

TEST_CASE("push-pull: what the daemon refuses is said, and nothing fails", "[transport]") {
    if (!can_mark())
        return;
    Settings settings;
    settings.limits.sockets = 2;
    RunningDaemon daemon(settings);
    Peers peers(daemon.path());
    peers.join();
    peers.round();
    const auto marking = peers.marking();
    CHECK(marking.by == MarkedBy::daemon);
    CHECK(marking.marked == 2);
    CHECK_THAT(marking.why, Contains("as many as are allowed"));
}

TEST_CASE("push-pull: who marks by itself, or wants no marks, gives no hints", "[transport]") {
    if (!can_mark())
        return;
    RunningDaemon daemon;
    Peers peers(daemon.path());
    const bool own = GENERATE(true, false);
    if (own) {
        const Marks marks = default_marks(7, 2);
        peers.options().push_marks = marks.push;
        peers.options().pull_marks = marks.pull;
    } else {
        peers.options().hints.reset();
    }
    peers.join();
    peers.round();
    CHECK(peers.marking().by == (own ? MarkedBy::program : MarkedBy::nobody));
    CHECK(peers.connections_by(SO_MARK) ==
          (own ? marks_of_job(7) : std::map<std::uint32_t, int>{{0, 10}}));
    CHECK(peers.connections_by(SO_PRIORITY) == std::map<std::uint32_t, int>{{0, 10}});
    CHECK(daemon.status().jobs.empty());
}

TEST_CASE("push-pull: a name that no hint can carry is said", "[transport]") {
    Peers peers("/nowhere/hints.sock");
    peers.options().job = std::string(200, 'x');
    peers.join();
    peers.round();
    CHECK(peers.marking().by == MarkedBy::nobody);
    CHECK_THAT(peers.marking().why, Contains("the name of the job must have 1 to 128 bytes"));
    CHECK_THAT(peers.log(), Contains("is not marked: the name of the job"));
}
