// SPDX-License-Identifier: MIT
#include "daemon/daemon.hpp"

#include <set>
#include <utility>

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "hints/message_socket.hpp"

namespace mercury::daemon {
namespace {

/// Leaves out what a message has no room for. Names may be long, and devices many.
void fit(hints::Status& status) {
    while (encode(hints::Answer(status)).size() > hints::message_bytes_max) {
        // Halves, or this would take as many rounds as there are devices.
        const std::size_t jobs = status.jobs.size() / 2;
        const std::size_t devices = status.devices.size() / 2;
        status.left_out += status.jobs.size() - jobs + status.devices.size() - devices;
        status.jobs.resize(jobs);
        status.devices.resize(devices);
    }
}

/// The jobs that rules mark sockets for.
std::set<unsigned> numbers_of(const std::vector<Rule>& rules) {
    std::set<unsigned> numbers;
    for (const Rule& rule : rules)
        numbers.insert(job_of_mark(rule.marking.mark));
    return numbers;
}

}  // namespace

Daemon::Daemon(Settings settings, Fd listener, Reactor& reactor, netlink::Kernel& kernel)
    : settings_(std::move(settings)),
      reactor_(reactor),
      network_(kernel, settings_.devices),
      layer_option_(settings_.dscp),
      registry_(
          settings_.jobs,
          [this](unsigned number, const Deadlines& deadlines) {
              network_.set_deadlines(number, deadlines);
          },
          [this](const Job& job) { return layer_option_.changed(job); }),
      server_(std::move(listener), reactor, registry_, settings_.limits, settings_.dscp,
              [this](std::uint32_t uid) { return status(uid); }) {}

Result<void> Daemon::start() {
    if (auto started = network_.start(reactor_); !started)
        return started;
    if (auto started = rules_.start(reactor_); !started)
        return started;
    rules_.configure(settings_.rules);
    registry_.set_numbers(settings_.jobs, numbers_of(settings_.rules));
    layer_option_.configure(settings_.setsockopt, registry_.jobs());
    return server_.start();
}

void Daemon::configure(Settings settings) {
    if (settings.socket != settings_.socket) {
        spdlog::warn("hints.socket stays {} until mercuryd is started again", settings_.socket);
        settings.socket = settings_.socket;
    }
    if (settings.metrics != settings_.metrics) {
        spdlog::warn("[metrics] stays as it is until mercuryd is started again");
        settings.metrics = settings_.metrics;
    }
    settings_ = std::move(settings);
    registry_.set_numbers(settings_.jobs, numbers_of(settings_.rules));
    network_.configure(settings_.devices);
    rules_.configure(settings_.rules);
    layer_option_.configure(settings_.setsockopt, registry_.jobs());
}

/// Of one user's jobs, or of all.
hints::Status Daemon::status_of(std::optional<std::uint32_t> uid) const {
    hints::Status status;
    status.daemon = fmt::format("mercuryd {}", MERCURY_VERSION);
    status.uptime = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - started_);
    status.clients = server_.clients();
    status.messages = server_.counters().messages;
    status.errors = server_.counters().errors;
    status.sockets = server_.counters().sockets + layer_option_.sockets();
    status.setsockopt = layer_option_.state();
    status.devices = network_.status();
    status.jobs = registry_.status(uid);
    return status;
}

hints::Status Daemon::status(std::uint32_t uid) const {
    const bool operates = uid == 0 || uid == geteuid();
    hints::Status status = status_of(operates ? std::nullopt : std::optional(uid));
    if (operates)
        status.rules = rules_.status();
    fit(status);
    return status;
}

Report Daemon::report() const {
    return {status_of(std::nullopt), server_.counters(), network_.counters()};
}

Result<Fd> listen_at(const std::string& path) {
    const auto address = hints::unix_address(path);
    if (!address)
        return address.error();
    Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener)
        return system_error("socket");
    const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(probe.get(), address.value().generic(), address.value().size) == 0)
        return Error{fmt::format("another daemon listens at {}", path)};
    unlink(path.c_str());  // of one that has ended
    if (bind(listener.get(), address.value().generic(), address.value().size) != 0 ||
        chmod(path.c_str(), 0666) != 0 || listen(listener.get(), SOMAXCONN) != 0)
        return system_error(fmt::format("cannot listen at {}", path));
    return listener;
}

}  // namespace mercury::daemon
