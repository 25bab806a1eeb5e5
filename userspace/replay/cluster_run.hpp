// SPDX-License-Identifier: MIT
//
// One run of one case: a fresh network, its jobs trained to the end, and what came of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.hpp"
#include "replay/cluster_case.hpp"
#include "replay/communicator.hpp"
#include "replay/conductor.hpp"
#include "replay/counters.hpp"
#include "replay/network.hpp"
#include "replay/trainer.hpp"
#include "replay/upload.hpp"

namespace mercury::replay {

struct RunHooks {
    bool timeline = false;                      // record a typical iteration
    std::function<void(double part)> progress;  // of the iterations, 0 to 1
    /// For a run that cannot be brought to an end, since a worker is stuck: must not return.
    std::function<void(const Error&)> give_up;
};

class CaseRun {
  public:
    /// ONE outlives the run.
    CaseRun(const ClusterCase& one, RunHooks hooks) : case_(one), hooks_(std::move(hooks)) {}
    CaseRun(const CaseRun&) = delete;
    CaseRun& operator=(const CaseRun&) = delete;
    /// Hangs up and joins everything.
    ~CaseRun();

    /// Call it once. The outcome is
    ///   jobs.NAME.iterations_ms: each measured iteration; .timeline: see timeline_json()
    ///   background.NAME: bits a second of all its flows
    ///   retransmits, timeouts: of all hosts; drops: "host 0", "port 0", ...: packets
    /// all of them in the measured part.
    Result<nlohmann::ordered_json> run(const StrategyFactory& make_strategy);

  private:
    /// What is counted from the start of the run on.
    struct Snapshot {
        Clock::time_point when;
        std::vector<std::uint64_t> bulk;  // bytes, by case_.background
        TcpCounters tcp;
        Drops drops;
    };
    struct WireSample {
        Clock::time_point when;
        LinkBytes bytes;
    };
    struct RunningJob {
        Job job;
        std::unique_ptr<Strategy> strategy;
        std::unique_ptr<Exchange> exchange;
        std::list<Trainer> trainers;   // by rank; a list keeps them where they are
        std::vector<WireSample> wire;  // of the host of rank 0
    };

    Result<void> set_up(const StrategyFactory& make_strategy);
    Result<void> start_bulk_flows();
    Result<void> connect_job(const CaseJob& job, const StrategyFactory& make_strategy);
    void start();
    void train(std::size_t job, std::size_t rank, Trainer& trainer, Clock::time_point start);
    void start_observers();
    void change_rate(const RateChange& change);
    void record_wire(RunningJob& job, std::chrono::nanoseconds step);
    void fail(const Error& error);

    /// Errors end here: nobody could join the threads that are stuck.
    void wait_or_give_up(Conductor::Wait outcome);
    std::string where_everybody_is() const;

    Result<Snapshot> snapshot() const;
    nlohmann::ordered_json outcome(const Snapshot& from, const Snapshot& until) const;
    nlohmann::ordered_json job_outcome(std::size_t index) const;
    nlohmann::ordered_json timeline_json(std::size_t index) const;

    const ClusterCase& case_;
    RunHooks hooks_;
    std::optional<Network> network_;
    std::vector<std::vector<std::unique_ptr<Upload>>> bulk_;  // by case_.background
    std::list<RunningJob> jobs_;
    std::optional<Conductor> conductor_;
    std::vector<std::thread> threads_;
    mutable std::mutex mutex_;
    std::optional<Error> first_error_;
};

}  // namespace mercury::replay
