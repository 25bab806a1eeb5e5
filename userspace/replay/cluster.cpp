// SPDX-License-Identifier: MIT
#include "replay/cluster.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>

#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "replay/case_progress.hpp"
#include "replay/cluster_results.hpp"
#include "replay/cluster_run.hpp"
#include "replay/isolated.hpp"
#include "replay/network.hpp"

namespace mercury::replay {
namespace {

using Json = nlohmann::ordered_json;

/// For a strategy to let go of its threads and sockets once its work is done.
constexpr unsigned seconds_to_let_go = 60;

// In the process of one run: lines of JSON to the one that waits
// -----------------------------------

void send_error(const Fd& pipe, const Error& error) {
    write_line(pipe, Json{{"error", error.message}}.dump());
}

void run_case(const ClusterCase& one, bool timeline, const StrategyFactory& make_strategy,
              const Fd& pipe) {
    RunHooks hooks;
    hooks.timeline = timeline;
    hooks.progress = [&](double part) { write_line(pipe, Json{{"progress", part}}.dump()); };
    hooks.give_up = [&](const Error& error) {
        send_error(pipe, error);
        _exit(EXIT_SUCCESS);
    };
    CaseRun run(one, std::move(hooks));
    const auto outcome = run.run(make_strategy);
    if (outcome)
        write_line(pipe, Json{{"outcome", outcome.value()}}.dump());
    else
        send_error(pipe, outcome.error());
    // A thread that hangs now must not hold up the other cases.
    alarm(seconds_to_let_go);
}

// In the process that waits
// ------------------------------------------------------------------------

struct RunOutcome {
    int interrupt = 0;
    std::optional<Json> outcome;
    std::string error;
};

RunOutcome run_once(const ClusterCase& one, bool timeline, const StrategyFactory& make_strategy,
                    const std::function<void(double)>& progress, int interrupt_fd) {
    RunOutcome run;
    const auto line = [&](const std::string& text) {
        Json message = Json::parse(text, nullptr, false);
        if (!message.is_object())
            return;
        if (message.contains("progress"))
            progress(message["progress"].get<double>());
        else if (message.contains("outcome"))
            run.outcome = std::move(message["outcome"]);
        else if (message.contains("error"))
            run.error = message["error"].get<std::string>();
    };
    const auto isolated = run_isolated(
        [&](const Fd& pipe) { run_case(one, timeline, make_strategy, pipe); }, line, interrupt_fd);
    run.interrupt = isolated.interrupt;
    if (run.error.empty() && !isolated.failure.empty()) {
        run.error = fmt::format("the run's process {}{}", isolated.failure,
                                run.outcome ? " after its work was done" : "");
    }
    if (run.error.empty() && !run.outcome)
        run.error = "the run ended without a word";
    return run;
}

class Driver {
  public:
    Driver(const ClusterExperiment& experiment, const ClusterOptions& options,
           const StrategyFactory& make_strategy, int interrupt_fd)
        : experiment_(experiment),
          options_(options),
          make_strategy_(make_strategy),
          interrupt_fd_(interrupt_fd),
          wall_(virtual_, options.json + ".clock"),
          results_(experiment.cases.size()) {}

    Result<int> run(std::vector<std::size_t> selected) {
        if (options_.resume || !options_.select.empty()) {
            auto earlier = earlier_results(experiment_, options_.json);
            if (!earlier)
                return earlier.error();
            results_ = std::move(earlier).value();
        }
        if (options_.resume)
            std::erase_if(selected, [&](std::size_t i) { return !results_[i].is_null(); });
        if (auto ready = try_qdiscs(selected); !ready)
            return ready.error();
        announce(selected.size());
        return run_all(selected);
    }

  private:
    /// tc knows best whether it knows a qdisc: before anything else takes hours.
    Result<void> try_qdiscs(const std::vector<std::size_t>& selected) const {
        std::set<std::vector<std::string>> tried;
        for (const std::size_t i : selected) {
            NetworkSettings settings = experiment_.cases[i].network;
            if (!tried.insert(settings.qdisc).second)
                continue;
            settings.hosts = hosts_min;
            if (const auto network = Network::build(settings); !network)
                return Error{fmt::format("{}: case \"{}\": {}", experiment_.path,
                                         experiment_.cases[i].name(), network.error().message)};
        }
        return {};
    }

    void announce(std::size_t count) const {
        const auto known = static_cast<std::size_t>(std::count_if(
            results_.begin(), results_.end(), [](const Json& one) { return !one.is_null(); }));
        spdlog::info("{}: {} of {} cases to run{}; results in {}", experiment_.name, count,
                     experiment_.cases.size(),
                     known > 0 ? fmt::format(", {} are known", known) : "", options_.json);
        if (!virtual_)
            spdlog::warn("the clock is real here: the speed of this machine is part of the result");
    }

    Result<int> run_all(const std::vector<std::size_t>& selected) {
        const double work =
            std::accumulate(selected.begin(), selected.end(), 0.0, [&](double sum, std::size_t i) {
                return sum + expected_seconds(experiment_.cases[i], virtual_);
            });
        start_ = wall_.seconds();
        ProgressLine progress(stderr, options_.terminal, selected.size(), work);
        std::size_t failed = 0;
        for (const std::size_t i : selected) {
            if (const int interrupt = run_one(i, progress); interrupt != 0)
                return interrupted(interrupt, progress);
            if (auto written = write(); !written)
                return written.error();
            ++complete_;
            if (results_[i].contains("error"))
                ++failed;
        }
        if (failed > 0)
            spdlog::error("{} of {} cases failed: see \"error\" in {}", failed, selected.size(),
                          options_.json);
        return failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    }

    /// The signal that ended it, or 0. The result takes the place of an earlier one.
    int run_one(std::size_t index, ProgressLine& progress) {
        const ClusterCase& one = experiment_.cases[index];
        progress.begin(one.name(), expected_seconds(one, virtual_));
        const double begun = elapsed();
        std::vector<Json> runs;
        std::string error;
        for (std::size_t repeat = 0; repeat < one.run.repeats && error.empty(); ++repeat) {
            const auto detail = fmt::format("run {} of {}", repeat + 1, one.run.repeats);
            const auto show = [&](double part) {
                progress.update(
                    detail,
                    (static_cast<double>(repeat) + part) / static_cast<double>(one.run.repeats),
                    elapsed());
            };
            show(0);
            RunOutcome run = run_once(one, repeat == 0, make_strategy_, show, interrupt_fd_);
            if (run.interrupt != 0)
                return run.interrupt;
            error = std::move(run.error);
            if (run.outcome)
                runs.push_back(std::move(*run.outcome));
        }
        results_[index] =
            error.empty() ? case_result(one, runs, elapsed() - begun) : case_failure(one, error);
        progress.end(describe_case(results_[index]), elapsed());
        return 0;
    }

    int interrupted(int signal, const ProgressLine& progress) const {
        progress.clear();
        if (complete_ == 0)
            spdlog::warn("interrupted before a case was complete");
        else
            spdlog::warn("interrupted: {} has the cases that were complete; --resume goes on",
                         options_.json);
        return 128 + signal;
    }

    double elapsed() const { return wall_.seconds() - start_; }

    Result<void> write() const {
        return write_atomically(options_.json,
                                experiment_result(experiment_, results_, virtual_).dump(1) + "\n");
    }

    const ClusterExperiment& experiment_;
    const ClusterOptions& options_;
    const StrategyFactory& make_strategy_;
    int interrupt_fd_;
    bool virtual_ = virtual_time();
    WallClock wall_;
    double start_ = 0;
    std::size_t complete_ = 0;   // cases of this run
    std::vector<Json> results_;  // by case, null for those that have none
};

}  // namespace

Result<std::vector<std::size_t>> select_cases(const ClusterExperiment& experiment,
                                              const std::vector<std::string>& texts) {
    std::vector<std::size_t> selected;
    for (std::size_t i = 0; i < experiment.cases.size(); ++i) {
        const std::string name = experiment.cases[i].name();
        if (texts.empty() || std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
                return name.find(text) != std::string::npos;
            }))
            selected.push_back(i);
    }
    for (const std::string& text : texts) {
        if (std::none_of(
                experiment.cases.begin(), experiment.cases.end(),
                [&](const ClusterCase& one) { return one.name().find(text) != std::string::npos; }))
            return Error{fmt::format("{}: no case has \"{}\" in its name; --list shows them",
                                     experiment.path, text)};
    }
    return selected;
}

std::string list_cases(const ClusterExperiment& experiment, const std::vector<std::size_t>& cases) {
    std::string text;
    double total = 0;
    for (const std::size_t i : cases) {
        const ClusterCase& one = experiment.cases[i];
        const double seconds = expected_seconds(one, true);
        total += seconds;
        text += fmt::format("{:>8}  {}\n", duration_for_people(seconds), one.name());
    }
    text += fmt::format("{} cases, about {} in virtual time on two cores\n", cases.size(),
                        duration_for_people(total));
    return text;
}

Result<int> run_cluster(const ClusterExperiment& experiment, const ClusterOptions& options,
                        const StrategyFactory& make_strategy, int interrupt_fd) {
    const auto selected = select_cases(experiment, options.select);
    if (!selected)
        return selected.error();
    return Driver(experiment, options, make_strategy, interrupt_fd).run(selected.value());
}

}  // namespace mercury::replay
