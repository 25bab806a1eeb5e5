// SPDX-License-Identifier: MIT
//
// mercuryd: takes hints from training programs, marks their sockets, and keeps the deadlines of
// sch_mercury.
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/descriptors.hpp"
#include "common/interrupts.hpp"
#include "common/logging.hpp"
#include "common/reactor.hpp"
#include "common/service_manager.hpp"
#include "daemon/daemon.hpp"
#include "daemon/metrics_server.hpp"
#include "netlink/socket.hpp"

namespace {

using namespace mercury;
using namespace mercury::daemon;

constexpr int exit_wrong_arguments = 2;

struct Arguments {
    std::string config;  // empty: the default one, if it is there
    std::string check;
    bool verbose = false;
};

Result<Settings> settings_for(const Arguments& arguments) {
    if (!arguments.config.empty())
        return load_settings(arguments.config);
    if (std::filesystem::exists(default_settings))
        return load_settings(default_settings);
    return Settings{};
}

/// What the service manager has opened, or else a socket of our own.
class Listener {
  public:
    Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() {
        if (!path_.empty())
            unlink(path_.c_str());
    }

    Result<Fd> open(const std::string& path) {
        auto given = sockets_of_service_manager();
        if (given.size() > 1)
            return Error{fmt::format("{} sockets were given, one is needed", given.size())};
        if (given.size() == 1) {
            int type = 0;
            socklen_t size = sizeof(type);
            if (getsockopt(given[0].get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
                type != SOCK_SEQPACKET)
                return Error{"the socket that was given is not a seqpacket socket"};
            return std::move(given[0]);
        }
        auto opened = listen_at(path);
        if (opened)
            path_ = path;
        return opened;
    }

  private:
    std::string path_;
};

void warn_if_unable() {
    const Fd probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int mark = 1;
    if (setsockopt(probe.get(), SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) != 0) {
        spdlog::warn("no socket can be marked ({}): CAP_NET_ADMIN is needed",
                     system_error("SO_MARK").message);
    }
}

/// The process around a Daemon: signals and the service manager.
class Process {
  public:
    explicit Process(Arguments arguments) : arguments_(std::move(arguments)) {}

    Result<void> run();

  private:
    Result<void> on_signal();
    void reload();
    Result<void> feed_watchdog();
    void serve_metrics();

    Arguments arguments_;
    Fd signals_;
    Reactor reactor_;
    Timer watchdog_;
    std::unique_ptr<netlink::Kernel> kernel_;
    std::unique_ptr<Daemon> daemon_;
    std::optional<MetricsServer> metrics_;
};

Result<void> Process::run() {
    auto signals = interrupts();
    if (!signals)
        return signals.error();
    signals_ = std::move(signals).value();
    raise_descriptor_limit();
    auto settings = settings_for(arguments_);
    if (!settings)
        return settings.error();
    Listener listener;
    auto socket = listener.open(settings.value().socket);
    if (!socket)
        return socket.error();
    auto kernel = netlink::Socket::open();
    if (!kernel)
        return kernel.error();
    kernel_ = std::move(kernel).value();
    warn_if_unable();

    daemon_ = std::make_unique<Daemon>(std::move(settings).value(), std::move(socket).value(),
                                       reactor_, *kernel_);
    if (auto started = daemon_->start(); !started)
        return started;
    if (auto watched = reactor_.watch(signals_.get(), EPOLLIN,
                                      [this](std::uint32_t /*events*/) { return on_signal(); });
        !watched)
        return watched;
    if (auto attached = watchdog_.attach(reactor_, [this] { return feed_watchdog(); }); !attached)
        return attached;
    if (auto fed = feed_watchdog(); !fed)
        return fed;
    serve_metrics();
    notify_service_manager("READY=1");
    spdlog::info("mercuryd {}: ready", MERCURY_VERSION);
    auto ended = reactor_.run();
    notify_service_manager("STOPPING=1");
    metrics_.reset();
    daemon_.reset();
    return ended;
}

/// Hints matter more: anybody can be first at a port.
void Process::serve_metrics() {
    const MetricsSettings& settings = daemon_->settings().metrics;
    if (settings.port == 0)
        return;
    metrics_.emplace(
        reactor_,
        []() -> Result<std::unique_ptr<netlink::Kernel>> {
            auto kernel = netlink::Socket::open();
            if (!kernel)
                return kernel.error();
            return std::unique_ptr<netlink::Kernel>(std::move(kernel).value());
        },
        [this] { return daemon_->report(); });
    if (const auto port = metrics_->listen(settings); !port)
        spdlog::error("{}", port.error().message);
}

Result<void> Process::on_signal() {
    signalfd_siginfo signal{};
    if (read(signals_.get(), &signal, sizeof(signal)) != sizeof(signal))
        return system_error("signalfd");
    if (signal.ssi_signo == SIGHUP) {
        reload();
    } else {
        spdlog::info("stopping");
        reactor_.stop();
    }
    return {};
}

void Process::reload() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    notify_service_manager(
        fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1'000'000 + now.tv_nsec / 1000));
    auto settings = settings_for(arguments_);
    if (settings) {
        daemon_->configure(std::move(settings).value());
        spdlog::info("the configuration has been read again");
    } else {
        spdlog::error("the old configuration stays: {}", settings.error().message);
    }
    notify_service_manager("READY=1");
}

Result<void> Process::feed_watchdog() {
    const auto time = watchdog_time();
    if (!time)
        return {};
    notify_service_manager("WATCHDOG=1");
    return watchdog_.arm(Clock::now() + *time / 2);
}

int check(const std::string& path) {
    const auto settings = load_settings(path);
    if (!settings) {
        spdlog::error("{}", settings.error().message);
        return EXIT_FAILURE;
    }
    fmt::print("{}: fine\n", path);
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    log_to_stderr("mercuryd");
    Arguments arguments;
    CLI::App app(
        "Takes hints from training programs and marks their sockets for sch_mercury. See "
        "mercuryd(8).",
        "mercuryd");
    app.set_version_flag("--version", fmt::format("mercuryd {} (hint protocol {})", MERCURY_VERSION,
                                                  fmt::join(hints::versions, ", ")));
    app.add_option("--config", arguments.config,
                   fmt::format("mercuryd.toml(5) (default: {}, if it is there)", default_settings))
        ->type_name("FILE");
    app.add_option("--check", arguments.check, "say what is wrong with a configuration, and exit")
        ->type_name("FILE");
    app.add_flag("--verbose", arguments.verbose, "log each request that is refused");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& end) {
        return app.exit(end) == 0 ? EXIT_SUCCESS : exit_wrong_arguments;
    }
    if (!arguments.check.empty())
        return check(arguments.check);
    if (arguments.verbose)
        spdlog::set_level(spdlog::level::debug);
    if (const auto ran = Process(std::move(arguments)).run(); !ran) {
        spdlog::error("{}", ran.error().message);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
