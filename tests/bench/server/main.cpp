// SPDX-License-Identifier: MIT
//
// bench_server: one measurement of what a thread does with bytes that come in over loopback, as a
// line of JSON. run.py, beside this file, repeats and compares.
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "aggregation.hpp"
#include "loops.hpp"

namespace {

using namespace mercury;
using namespace mercury::bench;

struct Options {
    std::uint64_t bytes = 0;
    std::size_t buffer = 0;
    std::string type = "f32";
    JobOptions job;
};

nlohmann::json json_of(const Figures& figures) {
    return {{"bytes", figures.bytes}, {"cpu_s", figures.cpu}, {"wall_s", figures.wall}};
}

nlohmann::json measure(const CLI::App& mode, Options options) {
    options.job.type = need(transport::parse_element_type(options.type));
    options.job.bytes = options.bytes;
    const std::string name = mode.get_name();
    if (name == "copy")
        return json_of(copy_memory(options.bytes, options.buffer));
    if (name == "receive" || name == "exchange")
        return json_of(
            plain_loop({options.job.workers, options.bytes, options.buffer, name == "exchange"}));
    if (name == "phases") {
        const Phases phases = serve_in_phases(options.job);
        return {{"push", json_of(phases.push)}, {"pull", json_of(phases.pull)}};
    }
    return json_of(name == "server" ? serve_plain_peers(options.job) : serve_workers(options.job));
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Measures once how fast one thread is, and prints it as JSON.", "bench_server");
    app.require_subcommand(1);
    app.add_option("--bytes", options.bytes, "that come in or are copied")->required();

    auto* const copy = app.add_subcommand("copy", "memcpy()");
    auto* const receive = app.add_subcommand("receive", "a plain loop of recv()");
    auto* const exchange = app.add_subcommand("exchange", "the same, and it sends all back");
    auto* const server = app.add_subcommand("server", "mercury's server, with plain peers");
    auto* const phases = app.add_subcommand("phases", "the same, first all pushes, then all pulls");
    auto* const workers = app.add_subcommand("workers", "mercury's server, with its workers");
    for (auto* const mode : {copy, receive, exchange})
        mode->add_option("--buffer", options.buffer, "bytes")->required();
    for (auto* const mode : {receive, exchange, server, phases, workers})
        mode->add_option("--workers", options.job.workers, "peers")->check(CLI::Range(1, 256));
    for (auto* const mode : {server, phases, workers}) {
        mode->add_option("--type", options.type, "f32, f16 or bf16");
        mode->add_option("--classes", options.job.classes, "")->check(CLI::Range(1, 16));
        mode->add_option("--tensors", options.job.tensors, "")->check(CLI::Range(1, 4096));
        mode->add_option("--tensor-bytes", options.job.tensor_bytes, "of each")->required();
        mode->add_option("--in-flight", options.job.in_flight, "bytes; 0: TCP decides");
    }
    CLI11_PARSE(app, argc, argv);

    fmt::print("{}\n", measure(*app.get_subcommands().front(), options).dump());
    return EXIT_SUCCESS;
}
