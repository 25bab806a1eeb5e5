// SPDX-License-Identifier: MIT
#include "replay/cluster_run.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <arpa/inet.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

/// Below the ports that the kernel gives to those who connect.
constexpr std::uint16_t first_job_port = 1000;
constexpr std::uint16_t ports_of_a_job = 1000;
constexpr in_port_t bulk_port = 900;

/// The slowest iteration that is not taken for a hang, as a multiple of the bound.
constexpr int patience_factor = 50;
constexpr auto patience_min = 60s;

/// Samples of the link in an iteration as long as the bound.
constexpr int samples_per_bound = 250;
constexpr auto sample_min = 20us;

double rounded(double value) {
    return std::round(value * 1e6) / 1e6;
}
double json_ms(std::chrono::nanoseconds time) {
    return rounded(to_ms(time));
}

std::uint64_t received(const std::vector<std::unique_ptr<Upload>>& flows) {
    std::uint64_t bytes = 0;
    for (const auto& flow : flows)
        bytes += flow->received();
    return bytes;
}

std::uint64_t difference(const std::vector<std::uint64_t>& from,
                         const std::vector<std::uint64_t>& until, std::size_t i) {
    return until[i] - from[i];
}

}  // namespace

CaseRun::~CaseRun() {
    if (conductor_)
        conductor_->abandon();
    for (std::thread& thread : threads_)
        thread.join();
}

Result<Json> CaseRun::run(const StrategyFactory& make_strategy) {
    if (auto ready = set_up(make_strategy); !ready)
        return ready.error();
    start();

    std::chrono::nanoseconds patience = patience_min;
    for (const CaseJob& job : case_.jobs)
        patience = std::max(patience, bound_of(job, case_.network).total() * patience_factor);
    wait_or_give_up(conductor_->wait_for_warm_up(patience));
    start_observers();
    const auto from = snapshot();
    wait_or_give_up(conductor_->wait_for_end(patience));
    const auto until = snapshot();
    if (!from || !until) {
        // The trainers would go on; they are not stuck, but have no end of their own yet.
        hooks_.give_up(from ? until.error() : from.error());
        return from ? until.error() : from.error();
    }
    for (std::thread& thread : threads_)
        thread.join();
    threads_.clear();
    return outcome(from.value(), until.value());
}

// Setting up ------------------------------------------------------------------------------------

Result<void> CaseRun::set_up(const StrategyFactory& make_strategy) {
    auto network = Network::build(case_.network);
    if (!network)
        return network.error();
    network_ = std::move(network).value();
    if (auto started = start_bulk_flows(); !started)
        return started;
    for (const CaseJob& job : case_.jobs) {
        if (auto connected = connect_job(job, make_strategy); !connected)
            return Error{fmt::format("{}: {}", job.name, connected.error().message)};
    }
    return {};
}

Result<void> CaseRun::start_bulk_flows() {
    Endpoint endpoint;
    endpoint.address.sin_port = htons(bulk_port);
    endpoint.late_binding = false;
    for (const BulkFlows& flows : case_.background) {
        auto& running = bulk_.emplace_back();
        for (const auto& [from, to] : flows.pairs) {
            for (std::size_t i = 0; i < flows.connections; ++i) {
                auto connection = connect_hosts(*network_, from, to, endpoint);
                if (!connection)
                    return Error{
                        fmt::format("background.{}: {}", flows.name, connection.error().message)};
                running.push_back(std::make_unique<Upload>(std::move(connection.value().from),
                                                           std::move(connection.value().to)));
            }
        }
    }
    return {};
}

Result<void> CaseRun::connect_job(const CaseJob& job, const StrategyFactory& make_strategy) {
    const auto index = static_cast<std::uint16_t>(jobs_.size());
    RunningJob& running = jobs_.emplace_back();
    running.job = {
        job.name,          job.number,
        job.profile,       job.hosts.workers,
        job.hosts.servers, static_cast<std::uint16_t>(first_job_port + index * ports_of_a_job)};
    auto strategy = make_strategy(job.spec);
    if (!strategy)
        return strategy.error();
    running.strategy = std::move(strategy).value();
    auto exchange = running.strategy->connect(running.job, *network_);
    if (!exchange)
        return exchange.error();
    running.exchange = std::move(exchange).value();
    return {};
}

// Running ---------------------------------------------------------------------------------------

void CaseRun::start() {
    std::vector<std::size_t> ranks;
    for (const RunningJob& running : jobs_)
        ranks.push_back(running.job.workers.size());
    // All threads exist by then.
    const Clock::time_point start = Clock::now() + 1ms;
    conductor_.emplace(ranks, case_.run.warm_up, case_.run.iterations, start);

    std::size_t index = 0;
    for (RunningJob& running : jobs_) {
        for (std::size_t rank = 0; rank < running.job.workers.size(); ++rank) {
            Trainer& trainer =
                running.trainers.emplace_back(running.job.profile, running.exchange->worker(rank));
            threads_.emplace_back(
                [this, index, rank, &trainer, start] { train(index, rank, trainer, start); });
        }
        ++index;
    }
}

void CaseRun::train(std::size_t job, std::size_t rank, Trainer& trainer, Clock::time_point start) {
    const auto all = static_cast<double>(case_.run.warm_up + case_.run.iterations);
    const auto trained = trainer.train(
        start, [&](std::size_t iteration) { return conductor_->proceed(job, iteration); },
        [&](std::size_t iteration, TrainedIteration log) {
            conductor_->finished(job, rank, iteration, std::move(log));
            if (job == 0 && rank == 0 && hooks_.progress)
                hooks_.progress(std::min(static_cast<double>(iteration + 1) / all, 1.0));
        });
    if (!trained)
        fail(Error{
            fmt::format("{}, worker {}: {}", case_.jobs[job].name, rank, trained.error().message)});
}

/// The first error is the cause of the others.
void CaseRun::fail(const Error& error) {
    {
        const std::lock_guard lock(mutex_);
        if (!first_error_)
            first_error_ = error;
    }
    conductor_->abandon();
}

void CaseRun::start_observers() {
    for (const RateChange& change : case_.rate_changes)
        threads_.emplace_back([this, &change] { change_rate(change); });
    if (!hooks_.timeline)
        return;
    std::size_t index = 0;
    for (RunningJob& running : jobs_) {
        const auto bound = bound_of(case_.jobs[index++], case_.network).total();
        const auto step = std::max<std::chrono::nanoseconds>(bound / samples_per_bound, sample_min);
        threads_.emplace_back([this, &running, step] { record_wire(running, step); });
    }
}

void CaseRun::change_rate(const RateChange& change) {
    const Clock::time_point from = conductor_->measured_from() + change.at;
    const Rate full = case_.network.rate;
    const Rate part{static_cast<std::uint64_t>(
        std::llround(static_cast<double>(full.bits_per_second) * change.factor))};
    if (!conductor_->runs_until(from))
        return;
    auto changed = network_->set_rate(change.host, part);
    if (changed && conductor_->runs_until(from + change.length))
        changed = network_->set_rate(change.host, full);
    if (!changed)
        fail(Error{fmt::format("rate_changes.{}: {}", change.name, changed.error().message)});
}

void CaseRun::record_wire(RunningJob& running, std::chrono::nanoseconds step) {
    const auto meter = LinkMeter::open(network_->host(running.job.workers[0]));
    if (!meter)
        return fail(meter.error());
    Clock::time_point next = conductor_->measured_from();
    do {
        const auto bytes = meter.value().read();
        if (!bytes)
            return fail(bytes.error());
        running.wire.push_back({Clock::now(), bytes.value()});
        next += step;
    } while (conductor_->runs_until(next));
}

void CaseRun::wait_or_give_up(Conductor::Wait outcome) {
    if (outcome == Conductor::Wait::stalled)
        return hooks_.give_up(
            Error{fmt::format("no worker makes progress: {}", where_everybody_is())});
    if (!conductor_->abandoned())
        return;
    Error error;
    {
        const std::lock_guard lock(mutex_);
        error = first_error_.value();
    }
    hooks_.give_up(error);
}

std::string CaseRun::where_everybody_is() const {
    std::string text;
    for (const RunningJob& running : jobs_) {
        std::size_t rank = 0;
        for (const Trainer& trainer : running.trainers) {
            text += fmt::format("{}{}, worker {} {}", text.empty() ? "" : "; ", running.job.name,
                                rank++, trainer.position().describe(running.job.profile));
        }
    }
    return text;
}

// The outcome -----------------------------------------------------------------------------------

Result<CaseRun::Snapshot> CaseRun::snapshot() const {
    Snapshot now;
    now.when = Clock::now();
    for (const auto& flows : bulk_)
        now.bulk.push_back(received(flows));
    for (std::size_t host = 0; host < network_->size(); ++host) {
        const auto tcp = tcp_counters(network_->host(host));
        if (!tcp)
            return tcp.error();
        now.tcp.retransmits += tcp.value().retransmits;
        now.tcp.timeouts += tcp.value().timeouts;
    }
    auto drops = network_->drops();
    if (!drops)
        return drops.error();
    now.drops = std::move(drops).value();
    return now;
}

Json CaseRun::outcome(const Snapshot& from, const Snapshot& until) const {
    Json jobs = Json::object();
    for (std::size_t i = 0; i < case_.jobs.size(); ++i)
        jobs[case_.jobs[i].name] = job_outcome(i);

    const double seconds = std::chrono::duration<double>(until.when - from.when).count();
    Json background = Json::object();
    for (std::size_t i = 0; i < case_.background.size(); ++i) {
        const auto bytes = static_cast<double>(difference(from.bulk, until.bulk, i));
        background[case_.background[i].name] = seconds > 0 ? bytes * 8 / seconds : 0;
    }
    Json drops = Json::object();
    for (std::size_t i = 0; i < network_->size(); ++i) {
        drops[fmt::format("host {}", i)] = difference(from.drops.hosts, until.drops.hosts, i);
        drops[fmt::format("port {}", i)] = difference(from.drops.ports, until.drops.ports, i);
    }
    return {{"jobs", std::move(jobs)},
            {"background", std::move(background)},
            {"retransmits", until.tcp.retransmits - from.tcp.retransmits},
            {"timeouts", until.tcp.timeouts - from.tcp.timeouts},
            {"drops", std::move(drops)}};
}

Json CaseRun::job_outcome(std::size_t index) const {
    Json times = Json::array();
    for (const JobIteration& iteration : conductor_->measured(index))
        times.push_back(json_ms(iteration.end - iteration.start));
    Json job{{"iterations_ms", std::move(times)}};
    if (hooks_.timeline)
        job["timeline"] = timeline_json(index);
    return job;
}

/// The measured iteration of worker 0 whose time is the median, or the next below.
Json CaseRun::timeline_json(std::size_t index) const {
    const auto& running = *std::next(jobs_.begin(), static_cast<std::ptrdiff_t>(index));
    auto log = conductor_->log(index);
    const auto middle = log.begin() + static_cast<std::ptrdiff_t>((log.size() - 1) / 2);
    std::nth_element(log.begin(), middle, log.end(), [](const auto& a, const auto& b) {
        return a.end - a.start < b.end - b.start;
    });
    const TrainedIteration& typical = *middle;
    const auto ms = [&](Clock::time_point time) { return json_ms(time - typical.start); };

    Json backward = Json::array();
    Json forward = Json::array();
    for (std::size_t i = 0; i < running.job.profile.layers.size(); ++i) {
        const Layer& layer = running.job.profile.layers[i];
        backward.push_back({i, ms(typical.computed[i] - layer.backward), ms(typical.computed[i])});
        forward.push_back({i, ms(typical.forward[i]), ms(typical.forward[i] + layer.forward)});
    }
    Json wire = Json::array();
    for (std::size_t i = 1; i < running.wire.size(); ++i) {
        const WireSample& before = running.wire[i - 1];
        const WireSample& sample = running.wire[i];
        if (before.when < typical.start || sample.when > typical.end)
            continue;
        wire.push_back({ms(sample.when), sample.bytes.sent - before.bytes.sent,
                        sample.bytes.received - before.bytes.received});
    }
    return {{"rank", 0},
            {"iteration_ms", json_ms(typical.end - typical.start)},
            {"backward", std::move(backward)},
            {"forward", std::move(forward)},
            {"wire", std::move(wire)}};
}

}  // namespace mercury::replay
