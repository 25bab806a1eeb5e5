// SPDX-License-Identifier: MIT
//
// replay: how long a training iteration takes when the network sends its layers in one order or
// another.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "common/interrupts.hpp"
#include "layers/models.hpp"
#include "replay/bound.hpp"
#include "replay/case_progress.hpp"
#include "replay/cluster.hpp"
#include "replay/experiment.hpp"
#include "replay/experiment_file.hpp"
#include "replay/report.hpp"
#include "replay/strategies.hpp"

namespace {

using namespace mercury;
using namespace mercury::replay;

/// Of a wrong command line, and of an experiment that is wrong or cannot be run: unlike one with
/// cases that fail.
constexpr int exit_cannot_run = 2;

struct Options {
    std::string profile = "vgg16";
    ComputeRate compute;
    std::string rate = "10gbit";
    std::string delay = "25us";
    std::string arms = "fifo,overlap,pfifo,fq,mercury";
    std::size_t classes = classes_default;
    std::size_t iterations = 3;
    std::size_t warm_up = 1;
    std::size_t uploads = 0;
    std::optional<std::string> hints;
    std::string json;
    std::string timeline;
};

Result<Settings> settings_of(const Options& options) {
    const auto rate = parse_rate(options.rate);
    if (!rate)
        return rate.error();
    const auto delay = parse_time(options.delay);
    if (!delay)
        return delay.error();
    auto arms = parse_arms(options.arms);
    if (!arms)
        return arms.error();
    return Settings{rate.value(),       delay.value(),   options.classes, options.warm_up,
                    options.iterations, options.uploads, options.hints,   std::move(arms).value()};
}

Result<void> write_file(const std::string& path, const std::string& content) {
    if (path.empty())
        return {};
    std::ofstream file(path, std::ios::binary);
    file << content;
    file.close();
    if (!file)
        return system_error(path);
    return {};
}

/// To find out before the work, not after it. An existing file keeps its content.
Result<void> check_writable(const std::string& path) {
    if (!path.empty() && !std::ofstream(path, std::ios::app))
        return system_error(path);
    return {};
}

Result<void> show_profile(const Options& options) {
    const auto profile = model_or_file(options.profile, options.compute);
    if (!profile)
        return profile.error();
    const auto rate = parse_rate(options.rate);
    if (!rate)
        return rate.error();
    const auto classes = group_layers(profile.value(), options.classes);
    if (!classes)
        return classes.error();
    fmt::print("{}", describe_profile(profile.value(), classes.value(), rate.value()));
    return {};
}

Result<void> list_models(const Options& options) {
    const auto rate = parse_rate(options.rate);
    if (!rate)
        return rate.error();
    const auto text = describe_models(options.compute, rate.value());
    if (!text)
        return text.error();
    fmt::print("{}", text.value());
    return {};
}

struct ClusterCommand {
    std::string experiment;
    std::string profiles;
    std::string progress = "auto";
    ClusterOptions options;
    bool list = false;
};

/// All hosts' sockets are this process's: eight hosts have more than a thousand.
Result<void> allow_many_descriptors() {
    constexpr rlim_t wanted = 65536;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return system_error("getrlimit");
    limit.rlim_cur = std::max(limit.rlim_cur, wanted);
    limit.rlim_max = std::max(limit.rlim_max, limit.rlim_cur);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return system_error("cannot allow itself 65536 open files (this needs root)");
    return {};
}

/// The exit status.
Result<int> run_cluster_command(ClusterCommand command) {
    const auto experiment = load_experiment(command.experiment, {command.profiles, &make_strategy});
    if (!experiment)
        return experiment.error();
    if (command.list) {
        const auto cases = select_cases(experiment.value(), command.options.select);
        if (!cases)
            return cases.error();
        fmt::print("{}", list_cases(experiment.value(), cases.value()));
        return EXIT_SUCCESS;
    }
    if (auto allowed = allow_many_descriptors(); !allowed)
        return allowed.error();
    if (command.options.json.empty())
        command.options.json = experiment.value().name + ".json";
    const std::string scratch = command.options.json + ".new";  // of write_atomically()
    if (auto writable = check_writable(scratch); !writable)
        return writable.error();
    unlink(scratch.c_str());
    const auto interrupt = interrupts();
    if (!interrupt)
        return interrupt.error();
    command.options.terminal = command.progress == "terminal" ||
                               (command.progress == "auto" && isatty(STDERR_FILENO) == 1);
    return run_cluster(experiment.value(), command.options, &make_strategy,
                       interrupt.value().get());
}

Result<void> run_demo(const Options& options) {
    auto profile = model_or_file(options.profile, options.compute);
    if (!profile)
        return profile.error();
    const auto settings = settings_of(options);
    if (!settings)
        return settings.error();
    for (const auto& path : {options.json, options.timeline}) {
        if (auto writable = check_writable(path); !writable)
            return writable;
    }
    const auto interrupt = interrupts();
    if (!interrupt)
        return interrupt.error();
    if (!virtual_time())
        spdlog::warn("the clock is real here: the speed of this machine is part of the result");

    const auto experiment = run_experiment(
        std::move(profile).value(), settings.value(), interrupt.value().get(), [&](const Arm& arm) {
            spdlog::info("{}: {} iterations ...", arm.name, options.warm_up + options.iterations);
        });
    if (!experiment)
        return experiment.error();

    fmt::print("\n{}", describe_experiment(experiment.value()));
    std::fflush(stdout);  // before what goes to stderr
    const double goodput = tcp_goodput(settings.value().rate);
    for (const ArmResult& result : experiment.value().arms) {
        if (std::abs(result.goodput / goodput - 1) > 0.02) {
            spdlog::warn(
                "{}: a bulk transfer got {:.4g} Gbit/s, expected {:.4g}: the link is not what it "
                "should be",
                result.arm->name, result.goodput / 1e9, goodput / 1e9);
        }
    }
    if (auto written = write_file(options.json, experiment_json(experiment.value())); !written)
        return written;
    return write_file(options.timeline, timeline_json(experiment.value()));
}

void add_rate_options(CLI::App& command, Options& options) {
    command.add_option("--tflops", options.compute.tflops,
                       "built-in models: sustained TFLOP/s of the GPU (default: the model's)");
    command.add_option("--batch", options.compute.batch,
                       "built-in models: samples per iteration (default: the model's)");
    command.add_option("--rate", options.rate, "of the link, as for tc")->capture_default_str();
}

void add_profile_options(CLI::App& command, Options& options) {
    command
        .add_option("PROFILE", options.profile,
                    "a built-in model (see replay models), or a file: PipeDream graph.txt or CSV "
                    "(idx,layer,fwd_ms,bwd_ms,param_bytes)")
        ->capture_default_str();
    add_rate_options(command, options);
    command.add_option("--classes", options.classes, "priority classes at most")
        ->capture_default_str();
}

void add_cluster_options(CLI::App& cluster, ClusterCommand& command) {
    cluster.add_option("EXPERIMENT", command.experiment, "a TOML file; see experiment_file.hpp")
        ->required();
    cluster.add_option("--json", command.options.json,
                       "where the results go (NAME.json here, for NAME.toml)");
    cluster.add_option("--profiles", command.profiles,
                       "folder where names of profile files are looked up, too");
    cluster.add_option("--case", command.options.select,
                       "only cases with this text in their name (repeatable); the results of the "
                       "others stay");
    cluster.add_flag("--resume", command.options.resume,
                     "leave out cases whose results are there, with the same settings");
    cluster.add_flag("--list", command.list, "show the cases and how long they take, run nothing");
    cluster.add_option("--progress", command.progress, "as on a terminal, or in lines")
        ->check(CLI::IsMember({"auto", "terminal", "lines"}))
        ->capture_default_str();
}

int report(const Error& error, int status) {
    spdlog::error("{}", error.message);
    return status;
}

int report(const Result<void>& outcome) {
    return outcome ? EXIT_SUCCESS : report(outcome.error(), EXIT_FAILURE);
}

}  // namespace

int main(int argc, char** argv) {
    spdlog::set_default_logger(spdlog::stderr_color_mt("replay"));
    spdlog::set_pattern("replay: %^%l%$: %v");

    Options options;
    CLI::App app("Replays training profiles over an emulated network.", "replay");
    app.require_subcommand(1);

    auto* const profile = app.add_subcommand("profile", "show layers, classes and the bound");
    add_profile_options(*profile, options);

    auto* const models = app.add_subcommand("models", "list the built-in models");
    add_rate_options(*models, options);

    auto* const demo = app.add_subcommand(
        "demo", "train over two network namespaces under each arm and compare (needs root)");
    add_profile_options(*demo, options);
    demo->add_option("--delay", options.delay, "of the link, each way")->capture_default_str();
    demo->add_option("--arms", options.arms, "what to compare")->capture_default_str();
    demo->add_option("--iterations", options.iterations, "measured iterations of each arm")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    demo->add_option("--warm-up", options.warm_up, "iterations before these")
        ->check(CLI::Range(0, 1000))
        ->capture_default_str();
    demo->add_option("--uploads", options.uploads,
                     "unmarked bulk transfers that share the worker's link, such as checkpoints")
        ->check(CLI::Range(0, 100))
        ->capture_default_str();
    demo->add_option("--hints", options.hints,
                     "let mercuryd mark the connections, which listens at this socket; otherwise "
                     "replay does")
        ->type_name("PATH");
    demo->add_option("--json", options.json, "write figures and settings to this file");
    demo->add_option("--timeline", options.timeline,
                     "write a typical iteration of each arm to this file");

    ClusterCommand command;
    auto* const cluster = app.add_subcommand(
        "cluster", "train in a virtual cluster as a file describes it (needs root)");
    add_cluster_options(*cluster, command);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& end) {
        return app.exit(end) == 0 ? EXIT_SUCCESS : exit_cannot_run;
    }
    if (cluster->parsed()) {
        const auto status = run_cluster_command(command);
        return status ? status.value() : report(status.error(), exit_cannot_run);
    }
    if (models->parsed())
        return report(list_models(options));
    return report(demo->parsed() ? run_demo(options) : show_profile(options));
}
