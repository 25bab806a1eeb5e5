// SPDX-License-Identifier: MIT
#include "cli/adopt.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include <mercury.h>

#include <fmt/format.h>

#include "cli/text.hpp"
#include "common/descriptors.hpp"
#include "common/logging.hpp"
#include "common/reactor.hpp"
#include "common/runs.hpp"
#include "hints/sockets.hpp"
#include "layers/classes.hpp"
#include "marking/connections.hpp"
#include "marking/marking.hpp"

namespace mercury::cli {
namespace {

using hints::Code;
using hints::Failure;

// A training program is idle between its bursts, if only for moments.
constexpr std::chrono::milliseconds between_tries{1};

/// A connection, and what becomes of it.
struct Adoption {
    pid_t pid = 0;
    Connection connection;
    std::size_t band = 0;
    Marking marking;
    bool done = false;
    std::optional<Failure> failure;
};

bool fits(const AdoptArguments& arguments, const Connection& connection) {
    return arguments.local_port.contains(connection.local.port) &&
           arguments.remote_port.contains(connection.remote.port) &&
           arguments.remote.contains(connection.remote.address);
}

Result<std::vector<Adoption>> find_connections(const AdoptArguments& arguments) {
    std::vector<Adoption> adoptions;
    for (const pid_t pid : arguments.pids) {
        auto found = connections_of(pid);
        if (!found)
            return found.error();
        auto& all = found.value();
        std::erase_if(all, [&](const Connection& one) { return !fits(arguments, one); });
        if (all.empty())
            return Error{fmt::format("process {} has no connection that fits", pid)};
        for (std::size_t i = 0; i < all.size(); ++i) {
            Adoption& adoption = adoptions.emplace_back();
            adoption.pid = pid;
            adoption.connection = std::move(all[i]);
            adoption.band = arguments.bands.of(i, all.size());
            adoption.marking.mark = mark_of_class(arguments.job, adoption.band);
            adoption.marking.priority =
                arguments.priority.value_or(hints::priority_of_class(adoption.band));
            adoption.marking.dscp = arguments.dscp;
        }
    }
    return adoptions;
}

/// True: it may be tried again.
bool try_to_mark(Adoption& adoption) {
    const auto outcome = mark_socket(adoption.connection.socket.get(), adoption.marking);
    adoption.failure.reset();
    if (const auto* const failure = std::get_if<Failure>(&outcome))
        adoption.failure = *failure;
    adoption.done = !adoption.failure;
    return adoption.failure && adoption.failure->code == Code::Busy;
}

/// Each as soon as it has nothing underway; what never has in time is forced or left.
void mark_all(const AdoptArguments& arguments, std::vector<Adoption>& adoptions) {
    const auto end = Clock::now() + arguments.wait;
    std::vector<Adoption*> waiting;
    for (Adoption& adoption : adoptions)
        waiting.push_back(&adoption);
    for (;;) {
        std::erase_if(waiting, [](Adoption* adoption) { return !try_to_mark(*adoption); });
        if (waiting.empty() || Clock::now() >= end)
            break;
        std::this_thread::sleep_for(between_tries);
    }
    if (!arguments.force)
        return;
    for (Adoption* const adoption : waiting) {
        adoption->marking.also_busy = true;
        try_to_mark(*adoption);
    }
}

std::string result_of(const Adoption& adoption) {
    if (!adoption.failure)
        return adoption.done ? "marked" : "would be marked";
    return adoption.failure->code == Code::Busy ? "busy" : adoption.failure->message;
}

Json adoption_json(const Adoption& adoption, unsigned job) {
    Json json;
    json["pid"] = adoption.pid;
    json["fd"] = adoption.connection.number;
    json["local"] = to_string(adoption.connection.local);
    json["remote"] = to_string(adoption.connection.remote);
    json["job"] = job;
    json["band"] = adoption.band;
    json["mark"] = adoption.marking.mark;
    json["marked"] = adoption.done;
    json["error"] = adoption.failure ? Json(result_of(adoption)) : Json(nullptr);
    return json;
}

void show(const std::vector<Adoption>& adoptions, unsigned job, const Output& output) {
    if (output.json) {
        Json json;
        json["sockets"] = Json::array();
        for (const Adoption& adoption : adoptions)
            json["sockets"].push_back(adoption_json(adoption, job));
        return print(json, true);
    }
    std::vector<std::vector<std::string>> rows{
        {"LOCAL", "REMOTE", "RESULT", "PID", "FD", "JOB", "BAND", "MARK"}};
    for (const Adoption& adoption : adoptions) {
        rows.push_back({to_string(adoption.connection.local), to_string(adoption.connection.remote),
                        printable(result_of(adoption)), fmt::format("{}", adoption.pid),
                        fmt::format("{}", adoption.connection.number), fmt::format("{}", job),
                        fmt::format("{}", adoption.band),
                        fmt::format("{:#x}", adoption.marking.mark)});
    }
    print(table(rows, 3));
}

}  // namespace

std::size_t BandRange::of(std::size_t index, std::size_t count) const {
    return first + index * (last - first + 1) / count;
}

Result<BandRange> parse_bands(std::string_view text) {
    const auto run = parse_run(text);
    if (!run || run->second >= MERCURY_BANDS_MAX) {
        return Error{fmt::format("\"{}\" is no BAND or FIRST-LAST of 0 to {}, such as \"0-3\"",
                                 text, MERCURY_BANDS_MAX - 1)};
    }
    return BandRange{run->first, run->second};
}

Outcome adopt(const AdoptArguments& arguments, const Output& output) {
    raise_descriptor_limit();
    auto found = find_connections(arguments);
    if (!found)
        return found.error();
    auto& adoptions = found.value();
    if (!arguments.dry_run)
        mark_all(arguments, adoptions);
    show(adoptions, arguments.job, output);
    const auto failed = std::ranges::count_if(
        adoptions, [](const Adoption& adoption) { return adoption.failure.has_value(); });
    if (failed != 0)
        return Error{fmt::format("{} of {} connections are not marked", failed, adoptions.size())};
    return Exit::Done;
}

}  // namespace mercury::cli
