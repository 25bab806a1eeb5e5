// SPDX-License-Identifier: MIT
//
// mercuryctl: see what the mercury qdiscs of this machine do, and set them up.
#include <functional>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/adopt.hpp"
#include "cli/commands.hpp"
#include "cli/top.hpp"
#include "common/units.hpp"
#include "hints/protocol.hpp"
#include "layers/classes.hpp"
#include "marking/marking.hpp"
#include "netlink/socket.hpp"

namespace {

using namespace mercury;
using namespace mercury::cli;

constexpr std::chrono::milliseconds interval_min(10);

struct Arguments {
    Output output;
    std::string interval = "1s";
    std::string file;
    std::string iteration;
    PlanArguments plan;
    std::string wait = "1s";
    AdoptArguments adopt;
    std::function<Outcome()> run;
};

/// Runs COMMAND with this machine's kernel.
template <typename Command>
std::function<Outcome()> with_kernel(Command command) {
    return [command]() -> Outcome {
        const auto kernel = netlink::Socket::open();
        if (!kernel)
            return kernel.error();
        return command(*kernel.value());
    };
}

void add_json(CLI::App& command, Arguments& arguments) {
    command.add_flag("--json", arguments.output.json, "print JSON, see mercuryctl(1)");
}

void add_interval(CLI::App& command, Arguments& arguments) {
    command.add_option("--interval", arguments.interval, "between two looks")
        ->type_name("TIME")
        ->capture_default_str();
}

void add_count(CLI::App& command, Arguments& arguments) {
    command.add_option("--count", arguments.output.count, "end after so many (0: never)")
        ->check(CLI::NonNegativeNumber)
        ->type_name("N");
}

void add_device(CLI::App& command, Arguments& arguments) {
    command.add_option("--dev", arguments.output.device, "only this device")->type_name("DEV");
}

/// A command that shows something of the kernel's, once or with --watch.
template <typename Command>
void add_view(CLI::App& app, Arguments& arguments, const char* name, const char* help,
              Command command) {
    CLI::App* const sub = app.add_subcommand(name, help);
    add_device(*sub, arguments);
    add_json(*sub, arguments);
    CLI::Option* const watch =
        sub->add_flag("--watch", arguments.output.watch, "again and again; JSON one line each");
    add_interval(*sub, arguments);
    add_count(*sub, arguments);
    for (const char* const option : {"--interval", "--count"})
        sub->get_option(option)->needs(watch);
    sub->callback([&arguments, command] {
        arguments.run = with_kernel(
            [&arguments, command](auto& kernel) { return command(kernel, arguments.output); });
    });
}

template <typename Command>
void add_file_command(CLI::App& app, Arguments& arguments, const char* name, const char* help,
                      Command command) {
    CLI::App* const sub = app.add_subcommand(name, help);
    sub->add_option("FILE", arguments.file, "with [[device]] tables, see mercuryctl(1)")
        ->required();
    add_json(*sub, arguments);
    sub->callback([&arguments, command] {
        arguments.run = with_kernel([&arguments, command](auto& kernel) {
            return command(kernel, arguments.file, arguments.output);
        });
    });
}

void add_top(CLI::App& app, Arguments& arguments) {
    CLI::App* const sub = app.add_subcommand("top", "live view of the bands; q ends it");
    sub->add_option("DEV", arguments.output.device, "where to begin");
    add_interval(*sub, arguments);
    sub->callback([&arguments] {
        arguments.run = with_kernel([&arguments](auto& kernel) -> Outcome {
            const auto shown = top(kernel, arguments.output.device, arguments.output.interval);
            return shown ? Outcome{Exit::Done} : shown.error();
        });
    });
}

void add_trace(CLI::App& app, Arguments& arguments) {
    CLI::App* const sub =
        app.add_subcommand("trace", "what was counted in each interval, as JSON lines");
    sub->add_option("DEV", arguments.output.device, "a device with a mercury qdisc")->required();
    add_interval(*sub, arguments);
    add_count(*sub, arguments);
    sub->callback([&arguments] {
        arguments.run =
            with_kernel([&arguments](auto& kernel) { return trace(kernel, arguments.output); });
    });
}

void add_doctor(CLI::App& app, Arguments& arguments) {
    CLI::App* const sub =
        app.add_subcommand("doctor", "what is wrong here, why it matters and what mends it");
    add_json(*sub, arguments);
    sub->callback([&arguments] {
        arguments.run =
            with_kernel([&arguments](auto& kernel) { return doctor(kernel, arguments.output); });
    });
}

void add_plan(CLI::App& app, Arguments& arguments) {
    CLI::App* const sub =
        app.add_subcommand("plan", "the classes, marks and deadlines that a model's layers get");
    sub->add_option("MODEL", arguments.plan.model, "a profile (CSV, graph.txt) or a built-in model")
        ->required();
    arguments.plan.classes = classes_default;
    sub->add_option("--classes", arguments.plan.classes, "at most so many")
        ->check(CLI::Range(std::size_t{1}, hints::classes_max))
        ->type_name("N")
        ->capture_default_str();
    sub->add_option("--job", arguments.plan.job, "number of the job, for the marks")
        ->check(CLI::Range(0U, hints::job_number_max))
        ->type_name("N")
        ->capture_default_str();
    sub->add_option("--iteration", arguments.iteration,
                    "how long an iteration takes, if the profile's times are of another machine")
        ->type_name("TIME");
    add_json(*sub, arguments);
    sub->callback([&arguments] {
        arguments.run = [&arguments] { return plan(arguments.plan, arguments.output); };
    });
}

/// A word of COMMAND that PARSE makes a value of.
template <typename T>
void add_word(CLI::App& command, const char* option, const char* help, const char* type,
              Result<T> (*parse)(std::string_view), auto& into) {
    command
        .add_option_function<std::string>(
            option, [parse, &into](const std::string& text) { into = parse(text).value(); }, help)
        ->check([parse](const std::string& text) {
            const auto parsed = parse(text);
            return parsed ? std::string() : parsed.error().message;
        })
        ->type_name(type);
}

void add_adopt(CLI::App& app, Arguments& arguments) {
    CLI::App* const sub =
        app.add_subcommand("adopt", "mark the connections of programs that are running");
    AdoptArguments& adopt = arguments.adopt;
    sub->add_option("PID", adopt.pids, "processes")->required()->check(CLI::PositiveNumber);
    add_word(*sub, "--band", "0 is sent first; over several, connections are spread by their age",
             "BAND[-BAND]", &parse_bands, adopt.bands);
    sub->get_option("--band")->required();
    sub->add_option("--job", adopt.job, "number of the job")
        ->check(CLI::Range(0U, unsigned{MERCURY_JOBS_MAX - 1}))
        ->type_name("N")
        ->capture_default_str();
    add_word(*sub, "--local-port", "only connections from there", "PORT[-PORT]", &parse_ports,
             adopt.local_port);
    add_word(*sub, "--remote-port", "only connections to there", "PORT[-PORT]", &parse_ports,
             adopt.remote_port);
    add_word(*sub, "--remote", "only connections to there", "PREFIX", &parse_prefix, adopt.remote);
    sub->add_option("--priority", adopt.priority, "SO_PRIORITY, instead of the band's")
        ->check(CLI::Range(0, 6))
        ->type_name("N");
    add_word(*sub, "--dscp", "also set this one", "DSCP", &parse_dscp, adopt.dscp);
    sub->add_option("--wait", arguments.wait, "for connections that have data underway")
        ->type_name("TIME")
        ->capture_default_str();
    sub->add_flag("--force", adopt.force, "those too, though their data is reordered");
    sub->add_flag("--dry-run", adopt.dry_run, "say what would be marked, and mark nothing");
    add_json(*sub, arguments);
    sub->callback([&arguments] {
        arguments.run = [&arguments] { return cli::adopt(arguments.adopt, arguments.output); };
    });
}

/// Times as they were given become times.
Result<void> read_times(Arguments& arguments) {
    const auto interval = parse_time(arguments.interval);
    if (!interval || interval.value() < interval_min)
        return Error{"--interval must be a time of 10ms to 3600s, such as 1s"};
    arguments.output.interval = interval.value();
    const auto wait = parse_time(arguments.wait);
    if (!wait)
        return Error{"--wait: " + wait.error().message};
    arguments.adopt.wait = wait.value();
    if (arguments.iteration.empty())
        return {};
    const auto iteration = parse_time(arguments.iteration);
    if (!iteration)
        return Error{"--iteration: " + iteration.error().message};
    arguments.plan.iteration = iteration.value();
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app("Shows and sets up mercury qdiscs. See mercuryctl(1).", "mercuryctl");
    app.set_version_flag("--version", "mercuryctl " MERCURY_VERSION);
    app.require_subcommand(1);
    add_view(app, arguments, "status", "the devices and their qdiscs, one line each", status);
    add_view(app, arguments, "stats", "all that qdiscs, jobs and bands have counted", stats);
    add_view(app, arguments, "jobs", "the jobs that have sent something", jobs);
    add_top(app, arguments);
    add_trace(app, arguments);
    add_doctor(app, arguments);
    add_file_command(app, arguments, "diff", "what apply would change", diff);
    add_file_command(app, arguments, "apply", "make devices as a file says", cli::apply);
    add_plan(app, arguments);
    add_adopt(app, arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& end) {
        return app.exit(end) == 0 ? Exit::Done : Exit::Usage;
    }
    if (const auto read = read_times(arguments); !read) {
        print_error(read.error().message);
        return Exit::Usage;
    }
    const auto outcome = arguments.run();
    if (outcome)
        return outcome.value();
    print_error(outcome.error().message);
    return Exit::Failed;
}
