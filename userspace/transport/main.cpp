// SPDX-License-Identifier: MIT
//
// mercury-server: as many independent servers as it is told, each in a thread at a port of its own.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/descriptors.hpp"
#include "common/fd.hpp"
#include "common/interrupts.hpp"
#include "common/logging.hpp"
#include "common/service_manager.hpp"
#include "transport/accumulator.hpp"
#include "transport/server.hpp"
#include "transport/server_arguments.hpp"
#include "transport/wire.hpp"

namespace {

using namespace mercury;
using namespace mercury::transport;

constexpr int exit_wrong_arguments = 2;

void add_limits(CLI::App& app, ServerArguments& arguments) {
    app.add_option("--max-jobs", arguments.jobs, "at the same time, at each port")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    app.add_option("--max-workers", arguments.workers, "of a job")
        ->check(CLI::Range(std::size_t{1}, Accumulator::workers_max))
        ->capture_default_str();
    app.add_option("--max-tensors", arguments.tensors, "of a job")
        ->check(CLI::Range(1, 10'000'000))
        ->capture_default_str();
    app.add_option("--max-memory", arguments.memory,
                   "of all sums at all ports (default: half of this machine's)")
        ->type_name("SIZE");
    app.add_option("--max-connections", arguments.connections,
                   "that have not said yet what they are, at each port")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
}

void add_window(CLI::App& app, ServerArguments& arguments) {
    auto* const bytes =
        app.add_option("--in-flight", arguments.in_flight,
                       "what may be underway to this host; 0: TCP decides (default: 384kb)")
            ->type_name("SIZE");
    auto* const buffer = app.add_option("--switch-buffer", arguments.switch_buffer,
                                        "instead: --in-flight is RATE x RTT + a sixth of this")
                             ->type_name("SIZE");
    auto* const rate =
        app.add_option("--rate", arguments.rate, "of this host's link, such as 10gbit")
            ->type_name("RATE");
    auto* const rtt =
        app.add_option("--rtt", arguments.rtt, "round trip time without queues")->type_name("TIME");
    for (auto* const one : {buffer, rate, rtt}) {
        one->excludes(bytes);
        for (auto* const other : {buffer, rate, rtt}) {
            if (one != other)
                one->needs(other);
        }
    }
}

void add_times(CLI::App& app, ServerArguments& arguments) {
    app.add_option("--silence", arguments.silence, "a worker that says nothing for so long is dead")
        ->type_name("TIME")
        ->capture_default_str();
    app.add_option("--join-time", arguments.join_time, "from a job's first worker to its last")
        ->type_name("TIME")
        ->capture_default_str();
    app.add_option("--stall", arguments.stall, "so long a worker may lag behind with a tensor")
        ->type_name("TIME")
        ->capture_default_str();
}

void add_options(CLI::App& app, ServerArguments& arguments) {
    app.set_version_flag("--version", fmt::format("mercury-server {} (protocol {})",
                                                  MERCURY_VERSION, protocol_version));
    app.add_option("--listen", arguments.listen, "address, and port of the first server")
        ->type_name("HOST:PORT[-LAST]")
        ->capture_default_str();
    app.add_option(
           "--threads", arguments.threads,
           "servers, at successive ports; one per core at most (default: one for each port)")
        ->type_name("N");
    auto* const token = app.add_option("--token-file", arguments.token_file,
                                       "workers must know what is in it; nobody else may read it")
                            ->type_name("FILE");
    app.add_flag("--no-token", arguments.no_token,
                 "let everybody in, also when not listening on loopback")
        ->excludes(token);
    add_limits(app, arguments);
    add_window(app, arguments);
    add_times(app, arguments);
    auto* const hints =
        app.add_option("--hints", arguments.hints,
                       "mercuryd's socket, which marks what is sent to jobs that give hints "
                       "(default: $MERCURY_SOCKET or /run/mercury/hints.sock)")
            ->type_name("PATH");
    app.add_flag("--no-marks", arguments.no_marks,
                 "do not mark what is sent, neither by mercuryd nor as workers ask for")
        ->excludes(hints);
}

/// The servers, each in its thread, from start() on.
class Servers {
  public:
    Servers() : ended_(eventfd(0, EFD_CLOEXEC)) {}
    Servers(const Servers&) = delete;
    Servers& operator=(const Servers&) = delete;
    ~Servers() { stop(); }

    Result<void> listen(const ServerSettings& settings);
    void start();
    /// Readable once one has ended.
    const Fd& ended() const { return ended_; }
    /// Workers are told.
    void stop();
    /// The first error of any of them, once they are stopped.
    Result<void> outcome() const;

  private:
    struct Running {
        std::unique_ptr<Server> server;
        std::thread thread;
        Result<void> outcome;
    };
    Fd ended_;
    std::vector<Running> servers_;
};

Result<void> Servers::listen(const ServerSettings& settings) {
    for (const Address& address : settings.addresses) {
        ServerOptions options = settings.each;
        // Where it listens is known only afterwards, if any port will do.
        const auto name = std::make_shared<std::string>();
        options.log = [name](const std::string& message) { spdlog::info("{}{}", *name, message); };
        auto server = Server::create(address, std::move(options));
        if (!server)
            return server.error();
        const std::string place = server.value()->address().to_string();
        spdlog::info("listening at {}", place);
        if (settings.addresses.size() > 1)
            *name = place + ": ";
        servers_.push_back({std::move(server).value(), {}, {}});
    }
    return {};
}

void Servers::start() {
    for (Running& running : servers_) {
        running.thread = std::thread([this, &running] {
            running.outcome = running.server->run();
            eventfd_write(ended_.get(), 1);
        });
    }
}

void Servers::stop() {
    for (const Running& running : servers_)
        running.server->stop();
    for (Running& running : servers_) {
        if (running.thread.joinable())
            running.thread.join();
    }
}

Result<void> Servers::outcome() const {
    const auto failed = std::find_if(servers_.begin(), servers_.end(),
                                     [](const Running& running) { return !running.outcome; });
    return failed == servers_.end() ? Result<void>{} : failed->outcome;
}

Result<void> serve(const ServerSettings& settings) {
    const auto interrupt = interrupts();
    if (!interrupt)
        return interrupt.error();
    raise_descriptor_limit();
    Servers servers;
    if (auto listening = servers.listen(settings); !listening)
        return listening;
    servers.start();
    notify_service_manager("READY=1");

    std::array<pollfd, 2> ends{
        {{interrupt.value().get(), POLLIN, 0}, {servers.ended().get(), POLLIN, 0}}};
    while (poll(ends.data(), ends.size(), -1) < 0) {
    }
    notify_service_manager("STOPPING=1");
    if (ends[0].revents != 0)
        spdlog::info("stopping");
    servers.stop();
    return servers.outcome();
}

}  // namespace

int main(int argc, char** argv) {
    log_to_stderr("mercury-server");

    ServerArguments arguments;
    CLI::App app("Adds up the gradients of training jobs as they arrive. See mercury-server(8).",
                 "mercury-server");
    add_options(app, arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& end) {
        return app.exit(end) == 0 ? EXIT_SUCCESS : exit_wrong_arguments;
    }
    const auto settings = settings_of(arguments);
    if (!settings) {
        spdlog::error("{}", settings.error().message);
        return exit_wrong_arguments;
    }
    if (const auto served = serve(settings.value()); !served) {
        spdlog::error("{}", served.error().message);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
