// SPDX-License-Identifier: MIT
//
// What a partition costs: the same bytes pushed and pulled in fewer or more partitions by one
// worker and one server over loopback, and the processor time of both that each further partition
// takes. That is this implementation's start-up cost per partition; see `startup` in
// strategy_baselines.cpp.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/result.hpp"
#include "common/units.hpp"
#include "common/units.hpp"
#include "replay/strategies.hpp"
#include "replay/strategy_connect.hpp"

namespace {

using namespace mercury;
using namespace mercury::replay;
using Seconds = std::chrono::duration<double>;

constexpr std::array partition_sizes{std::uint64_t{4} << 20, std::uint64_t{1} << 20,
                                     std::uint64_t{1} << 18, std::uint64_t{1} << 16,
                                     std::uint64_t{1} << 14};
constexpr std::uint64_t credit = std::uint64_t{16} << 20;

/// User and system time of this process.
Seconds processor_time() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return Seconds(static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Result<void> exchange_once(Communicator& worker) {
    if (auto pushed = worker.push(0); !pushed)
        return pushed;
    return worker.wait(0);
}

/// Processor time of one exchange of BYTES, the median of REPEATS.
Result<Seconds> measure(std::uint64_t bytes, std::uint64_t partition, std::size_t repeats) {
    Job job;
    job.name = "cost";
    job.profile = {"cost", "", {{"all", {}, {}, bytes}}};
    job.workers = {0};
    job.servers = {0};
    job.first_port = 1;
    auto strategy = make_strategy({"bytescheduler",
                                   {{"partition", fmt::format("{}", partition)},
                                    {"credit", fmt::format("{}", std::max(credit, partition))}}});
    if (!strategy)
        return strategy.error();
    const auto exchange =
        dynamic_cast<SocketStrategy&>(*strategy.value()).connect_by(job, over_loopback());
    if (!exchange)
        return exchange.error();

    Communicator& worker = exchange.value()->worker(0);
    if (auto warm = exchange_once(worker); !warm)
        return warm.error();
    std::vector<Seconds> times;
    for (std::size_t i = 0; i < repeats; ++i) {
        const Seconds before = processor_time();
        if (auto done = exchange_once(worker); !done)
            return done.error();
        times.push_back(processor_time() - before);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/// The slope of the straight line through POINTS with the least squares.
double slope(const std::vector<std::pair<double, double>>& points) {
    double x_mean = 0;
    double y_mean = 0;
    for (const auto& [x, y] : points) {
        x_mean += x / static_cast<double>(points.size());
        y_mean += y / static_cast<double>(points.size());
    }
    double xy = 0;
    double xx = 0;
    for (const auto& [x, y] : points) {
        xy += (x - x_mean) * (y - y_mean);
        xx += (x - x_mean) * (x - x_mean);
    }
    return xy / xx;
}

Result<void> run(std::uint64_t bytes, std::size_t repeats) {
    fmt::print("{:>10} {:>10} {:>16}\n", "partition", "partitions", "processor, ms");
    std::vector<std::pair<double, double>> points;
    for (const std::uint64_t partition : partition_sizes) {
        const auto time = measure(bytes, partition, repeats);
        if (!time)
            return time.error();
        const std::uint64_t count = (bytes + partition - 1) / partition;
        fmt::print("{:>10} {:>10} {:>16.1f}\n", bytes_to_string(partition), count,
                   time.value().count() * 1e3);
        points.emplace_back(static_cast<double>(count), time.value().count());
    }
    fmt::print(
        "\nEach further partition takes {:.1f} us of processor time, pushed, acknowledged "
        "and pulled, at both ends together.\n",
        slope(points) * 1e6);
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t bytes = std::uint64_t{256} << 20;
    std::size_t repeats = 9;
    CLI::App app("Measures the processor time that a partition costs over loopback.",
                 "bench_partition_cost");
    app.add_option("--bytes", bytes, "of each exchange")
        ->check(CLI::Range(std::uint64_t{8} << 20, std::uint64_t{1} << 32))
        ->capture_default_str();
    app.add_option("--repeats", repeats, "of each partition size; the median counts")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    const auto done = run(bytes, repeats);
    if (done)
        return EXIT_SUCCESS;
    fmt::print(stderr, "bench_partition_cost: {}\n", done.error().message);
    return EXIT_FAILURE;
}
