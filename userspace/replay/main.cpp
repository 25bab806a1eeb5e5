// SPDX-License-Identifier: MIT
//
// replay: how long a training iteration takes when the network sends its layers in one order or
// another.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/signalfd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "replay/bound.hpp"
#include "replay/experiment.hpp"
#include "replay/report.hpp"
#include "replay/vgg16.hpp"

namespace {

using namespace mercury;
using namespace mercury::replay;

struct Options {
    std::string profile;  // empty: built in
    ComputeRate compute;  // of the built-in one
    std::string rate = "10gbit";
    std::string delay = "25us";
    std::string arms = "fifo,overlap,pfifo,fq,mercury";
    std::size_t classes = classes_default;
    std::size_t iterations = 3;
    std::size_t warm_up = 1;
    std::size_t uploads = 0;
    std::string json;
    std::string timeline;
};

Result<Profile> chosen_profile(const Options& options) {
    return options.profile.empty() ? builtin_vgg16(options.compute) : load_profile(options.profile);
}

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
    return Settings{rate.value(),       delay.value(),   options.classes,        options.warm_up,
                    options.iterations, options.uploads, std::move(arms).value()};
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

/// Becomes readable at SIGINT, SIGTERM or SIGHUP, which no longer kill this process, so that it
/// can clean up.
Result<Fd> interrupts() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
    if (!fd)
        return system_error("signalfd");
    return fd;
}

/// In virtual time computing costs nothing, so that only the network and the profile count.
bool virtual_time() {
    std::ifstream file("/proc/cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    return line.find("time-travel") != std::string::npos;
}

Result<void> show_profile(const Options& options) {
    const auto profile = chosen_profile(options);
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

Result<void> run_demo(const Options& options) {
    auto profile = chosen_profile(options);
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

void add_profile_options(CLI::App& command, Options& options) {
    command.add_option("PROFILE", options.profile,
                       "PipeDream graph.txt or CSV (idx,layer,fwd_ms,bwd_ms,param_bytes); "
                       "without it, a built-in VGG-16");
    command
        .add_option("--tflops", options.compute.tflops,
                    "built-in profile: sustained TFLOP/s of the GPU")
        ->capture_default_str();
    command.add_option("--batch", options.compute.batch, "built-in profile: images per iteration")
        ->capture_default_str();
    command.add_option("--rate", options.rate, "of the link, as for tc")->capture_default_str();
    command.add_option("--classes", options.classes, "priority classes at most")
        ->capture_default_str();
}

int report(const Result<void>& outcome) {
    if (outcome)
        return EXIT_SUCCESS;
    spdlog::error("{}", outcome.error().message);
    return EXIT_FAILURE;
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
    demo->add_option("--json", options.json, "write figures and settings to this file");
    demo->add_option("--timeline", options.timeline,
                     "write a typical iteration of each arm to this file");

    CLI11_PARSE(app, argc, argv);
    return report(demo->parsed() ? run_demo(options) : show_profile(options));
}
