// SPDX-License-Identifier: MIT
#include "daemon/metrics_server.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "daemon/lane.hpp"

namespace mercury::daemon {
namespace {

using namespace std::chrono_literals;

// Reading the kernel takes its lock for traffic control: whoever asks more often gets the same
// answer again.
constexpr auto answer_lasts = 1s;

// A client that has not sent its request, or taken the answer, by then never will. One may keep a
// thread from others for so long.
constexpr const char* request_timeout_ms = "2000";
constexpr const char* threads = "4";

}  // namespace

/// Called from the exposer's threads.
class MetricsServer::Collector final : public prometheus::Collectable {
  public:
    Collector(OpenKernel open_kernel, MakeReport report)
        : open_kernel_(std::move(open_kernel)), report_(std::move(report)) {}

    Result<void> attach(Reactor& reactor) { return inbox_.attach(reactor); }
    /// Nobody waits for the reactor any more.
    void detach(Reactor& reactor);
    void set_job_names(bool job_names) { job_names_ = job_names; }

    std::vector<prometheus::MetricFamily> Collect() const override;

  private:
    std::optional<netlink::Snapshot> ask_kernel() const;
    std::optional<Report> ask_daemon() const;

    const OpenKernel open_kernel_;
    const MakeReport report_;
    bool job_names_ = false;

    mutable std::mutex collecting_;
    mutable std::vector<prometheus::MetricFamily> answer_;
    mutable Clock::time_point answered_{};

    mutable Inbox inbox_;
    mutable std::mutex reporting_;
    mutable std::condition_variable reported_;
    mutable std::optional<Report> made_;
    bool detached_ = false;
};

void MetricsServer::Collector::detach(Reactor& reactor) {
    inbox_.detach(reactor);
    const std::scoped_lock lock(reporting_);
    detached_ = true;
    reported_.notify_all();
}

std::vector<prometheus::MetricFamily> MetricsServer::Collector::Collect() const {
    const std::scoped_lock lock(collecting_);
    if (answer_.empty() || Clock::now() > answered_ + answer_lasts) {
        const auto snapshot = ask_kernel();
        answer_ = metric_families(snapshot, ask_daemon(), job_names_);
        answered_ = Clock::now();
    }
    return answer_;
}

std::optional<netlink::Snapshot> MetricsServer::Collector::ask_kernel() const {
    const auto kernel = open_kernel_();
    auto snapshot = kernel ? netlink::read_snapshot(*kernel.value())
                           : Result<netlink::Snapshot>(kernel.error());
    if (snapshot)
        return std::move(snapshot).value();
    spdlog::warn("metrics: {}", snapshot.error().message);
    return std::nullopt;
}

std::optional<Report> MetricsServer::Collector::ask_daemon() const {
    inbox_.post([this] {
        Report report = report_();
        const std::scoped_lock lock(reporting_);
        made_ = std::move(report);
        reported_.notify_all();
    });
    std::unique_lock lock(reporting_);
    reported_.wait(lock, [this] { return made_ || detached_; });
    return std::exchange(made_, std::nullopt);
}

MetricsServer::MetricsServer(Reactor& reactor, OpenKernel open_kernel, MakeReport report)
    : reactor_(reactor),
      collector_(std::make_shared<Collector>(std::move(open_kernel), std::move(report))) {}

MetricsServer::~MetricsServer() {
    collector_->detach(reactor_);
}

Result<int> MetricsServer::listen(const MetricsSettings& settings) {
    if (auto attached = collector_->attach(reactor_); !attached)
        return attached.error();
    collector_->set_job_names(settings.job_names);
    const bool is_ipv6 = settings.address.find(':') != std::string::npos;
    const std::string where = is_ipv6 ? fmt::format("[{}]:{}", settings.address, settings.port)
                                      : fmt::format("{}:{}", settings.address, settings.port);
    try {
        exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
            "listening_ports", where, "num_threads", threads, "request_timeout_ms",
            request_timeout_ms, "enable_keep_alive", "no"});
    } catch (const std::exception& /*says no more*/) {
        return Error{
            fmt::format("metrics: cannot listen at {}: is it in use, or no address of "
                        "this machine?",
                        where)};
    }
    exposer_->RegisterCollectable(collector_);
    return exposer_->GetListeningPorts().front();
}

}  // namespace mercury::daemon
