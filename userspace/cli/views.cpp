// SPDX-License-Identifier: MIT
//
// The commands that only look: status, stats, jobs, trace, doctor.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/daemon.hpp"
#include "cli/doctor.hpp"
#include "cli/repeat.hpp"
#include "cli/text.hpp"
#include "common/logging.hpp"

namespace mercury::cli {
namespace {

using netlink::Class;
using netlink::Kernel;
using Daemon = std::optional<hints::Status>;

/// Once, or again and again. On a terminal each takes the place of the one before.
Outcome show(const Output& output, const std::function<Result<void>()>& once) {
    if (!output.watch) {
        const auto done = once();
        return done ? Outcome{Exit::Done} : done.error();
    }
    const bool clears = !output.json && isatty(STDOUT_FILENO) != 0;
    Reactor reactor;
    const auto done = repeat(reactor, output.interval, output.count, [&] {
        if (clears)
            print("\033[H\033[J");
        return once();
    });
    return done ? Outcome{Exit::Done} : done.error();
}

/// The same for a snapshot: what JSON or TEXT makes of it.
Outcome show_snapshot(Kernel& kernel, const Output& output,
                      const std::function<Json(const Snapshot&)>& json,
                      const std::function<std::string(const Snapshot&)>& text) {
    return show(output, [&]() -> Result<void> {
        const auto snapshot = read_snapshot(kernel, output.device);
        if (!snapshot)
            return snapshot.error();
        if (output.json)
            print(json(snapshot.value()), !output.watch);
        else
            print(text(snapshot.value()));
        return {};
    });
}

/// The same with what mercuryd knows. One that does not answer is as good as none, but is named.
Outcome show_with_daemon(Kernel& kernel, const Output& output,
                         Json (*json)(const Snapshot&, const Daemon&),
                         std::string (*text)(const Snapshot&, const Daemon&)) {
    const auto ask = [] {
        auto daemon = ask_daemon(daemon_socket());
        if (!daemon)
            print_error(daemon.error().message);
        return daemon ? std::move(daemon).value() : Daemon{};
    };
    return show_snapshot(
        kernel, output, [&](const Snapshot& snapshot) { return json(snapshot, ask()); },
        [&](const Snapshot& snapshot) { return text(snapshot, ask()); });
}

std::int64_t wall_clock() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

/// Calls VISIT(device, class) for the class of each job.
template <typename Visit>
void for_each_job(const Snapshot& snapshot, Visit visit) {
    for (const DeviceState& device : snapshot.devices) {
        for (const QdiscState& state : device.mercury) {
            for (const Class& one : state.classes) {
                if (options_of(one).job && !options_of(one).band)
                    visit(device, one);
            }
        }
    }
}

Json jobs_json(const Snapshot& snapshot, const Daemon& daemon) {
    Json json;
    json["jobs"] = Json::array();
    for_each_job(snapshot, [&](const DeviceState& device, const Class& one) {
        const auto* const known = find_job(daemon, *options_of(one).job);
        Json job;
        job["dev"] = device.link.name;
        job["name"] = known != nullptr ? Json(known->name) : Json(nullptr);
        job["user"] = known != nullptr ? Json(known->user) : Json(nullptr);
        job.update(to_json(one));
        json["jobs"].push_back(std::move(job));
    });
    json["daemon"] = daemon_json(daemon);
    return json;
}

std::vector<std::string> job_row(const DeviceState& device, const Class& one,
                                 const Daemon& daemon) {
    const netlink::ClassOptions& options = options_of(one);
    const auto mercury = one.mercury.value_or(netlink::MercuryStatistics{});
    const auto* const known = find_job(daemon, *options.job);
    const std::uint32_t limit = options.limit.value_or(0);
    return {printable(device.link.name),
            fmt::format("{}", *options.job),
            fmt::format("{}", options.weight.value_or(0)),
            limit == 0 ? "none" : fmt::format("{}", limit),
            bytes_text(one.statistics.bytes),
            fmt::format("{}", one.statistics.qlen),
            fmt::format("{}", one.statistics.drops),
            fmt::format("{}", mercury.missed.value_or(0)),
            known != nullptr ? user_name(known->user) : "-",
            known != nullptr ? printable(known->name) : "-"};
}

std::string jobs_text(const Snapshot& snapshot, const Daemon& daemon) {
    // The name comes last: it may be longer than a terminal is wide.
    std::vector<std::vector<std::string>> rows{
        {"DEVICE", "JOB", "WEIGHT", "LIMIT", "SENT", "QLEN", "DROPS", "MISSED", "USER", "NAME"}};
    for_each_job(snapshot, [&](const DeviceState& device, const Class& one) {
        rows.push_back(job_row(device, one, daemon));
    });
    return rows.size() == 1 ? "no job has sent anything\n" : table(rows, 1, 2);
}

Json status_json(const Snapshot& snapshot, const Daemon& daemon) {
    Json json;
    json["devices"] = Json::array();
    for (const DeviceState& device : snapshot.devices) {
        if (!device.link.loopback || !device.mercury.empty())
            json["devices"].push_back(cli::status_json(device));
    }
    json["daemon"] = daemon_json(daemon);
    return json;
}

std::string status_text(const Snapshot& snapshot, const Daemon& daemon) {
    return cli::status_text(snapshot) + daemon_text(daemon);
}

Json stats_json(const Snapshot& snapshot) {
    Json json;
    json["time_ns"] = wall_clock();
    json["devices"] = Json::array();
    for (const DeviceState& device : snapshot.devices) {
        if (!device.mercury.empty())
            json["devices"].push_back(to_json(device));
    }
    return json;
}

bool is_idle(const Json& one) {
    return one["packets"] == 0 && one["drops"] == 0 && one["qlen"] == 0;
}

Json trace_json(const DeviceState& delta, std::chrono::nanoseconds interval) {
    Json json;
    json["time_ns"] = wall_clock();
    json["interval_ns"] = interval.count();
    json.update(to_json(delta));
    for (Json& qdisc : json["qdiscs"]) {
        qdisc.erase("options");
        Json& classes = qdisc["classes"];
        classes.erase(std::remove_if(classes.begin(), classes.end(), is_idle), classes.end());
    }
    return json;
}

}  // namespace

Outcome status(Kernel& kernel, const Output& output) {
    return show_with_daemon(kernel, output, status_json, status_text);
}

Outcome stats(Kernel& kernel, const Output& output) {
    return show_snapshot(kernel, output, stats_json, stats_text);
}

Outcome jobs(Kernel& kernel, const Output& output) {
    return show_with_daemon(kernel, output, jobs_json, jobs_text);
}

Outcome trace(Kernel& kernel, const Output& output) {
    std::optional<Snapshot> earlier;
    std::uint64_t left = output.count;
    Reactor reactor;
    const auto done = repeat(reactor, output.interval, 0, [&]() -> Result<void> {
        auto now = read_snapshot(kernel, output.device);
        if (!now)
            return now.error();
        if (earlier) {
            const Snapshot delta = since(*earlier, now.value());
            print(trace_json(delta.devices[0], delta.when - earlier->when), false);
            if (left != 0 && --left == 0)
                reactor.stop();
        } else if (now.value().devices[0].mercury.empty()) {
            return Error{fmt::format("{} has no mercury qdisc", printable(output.device))};
        }
        earlier = std::move(now).value();
        return {};
    });
    return done ? Outcome{Exit::Done} : done.error();
}

Outcome doctor(Kernel& kernel, const Output& output) {
    const auto facts = gather(kernel);
    if (!facts)
        return facts.error();
    const auto findings = diagnose(facts.value());
    if (output.json)
        print(doctor_json(findings), true);
    else
        print(doctor_text(findings));
    return std::ranges::all_of(findings, &Finding::good) ? Exit::Done : Exit::Differs;
}

}  // namespace mercury::cli
