// SPDX-License-Identifier: MIT
#include "replay/cluster_results.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <fmt/format.h>

#include "replay/order_bound.hpp"

namespace mercury::replay {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double value) {
    return std::round(value * 1e6) / 1e6;
}
double json_ms(std::chrono::nanoseconds time) {
    return rounded(to_ms(time));
}

Json spread(const std::vector<double>& values) {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t count = sorted.size();
    Json all = Json::array();
    for (const double value : values)
        all.push_back(rounded(value));
    return {{"median", rounded((sorted[(count - 1) / 2] + sorted[count / 2]) / 2)},
            {"min", rounded(sorted.front())},
            {"max", rounded(sorted.back())},
            {"values", std::move(all)}};
}

double mean(const Json& values) {
    return std::accumulate(
               values.begin(), values.end(), 0.0,
               [](double sum, const Json& value) { return sum + value.get<double>(); }) /
           static_cast<double>(values.size());
}

std::vector<double> values_of(const std::vector<Json>& runs, const char* key) {
    std::vector<double> values;
    for (const Json& run : runs)
        values.push_back(run.at(key).get<double>());
    return values;
}

Json labels_json(const ClusterCase& one) {
    Json labels = Json::object();
    for (const auto& [dimension, label] : one.labels)
        labels[dimension] = label;
    return labels;
}

Json headline(const ClusterCase& one) {
    return {{"name", one.name()},
            {"labels", labels_json(one)},
            {"variant", one.variant},
            {"settings", settings_json(one)}};
}

Json layers_json(const Profile& profile) {
    Json layers = Json::array();
    for (const Layer& layer : profile.layers) {
        layers.push_back(
            {layer.name, layer.bytes, json_ms(layer.forward), json_ms(layer.backward)});
    }
    return layers;
}

Json bound_json(const ClusterCase& one, const CaseJob& job) {
    const Bound bound = bound_of(job, one.network);
    return {{"compute_ms", json_ms(bound.compute)},
            {"wire_ms", json_ms(bound.wire)},
            {"total_ms", json_ms(bound.total())},
            {"order_ms", json_ms(order_bound(job.profile, bound.wire))},
            {"with_rate_changes_ms", json_ms(bound_with_changes(one, job))}};
}

Json job_json(const ClusterCase& one, const CaseJob& job, const std::vector<Json>& runs) {
    std::vector<double> means;
    Json iterations = Json::array();
    for (const Json& run : runs) {
        const Json& times = run.at("jobs").at(job.name).at("iterations_ms");
        means.push_back(mean(times));
        iterations.push_back(times);
    }
    Json times = spread(means);
    const double bound = to_ms(bound_with_changes(one, job));
    const double over_bound = bound > 0 ? rounded(times["median"].get<double>() / bound) : 0;
    return {{"model", job.model},
            {"strategy", job.strategy},
            {"placement", job.placement},
            {"workers", job.hosts.workers},
            {"servers", job.hosts.servers},
            {"bytes", job.profile.bytes()},
            {"source", job.profile.source},
            {"layers", layers_json(job.profile)},
            {"bound", bound_json(one, job)},
            {"iteration_ms", std::move(times)},
            {"iterations_ms", std::move(iterations)},
            {"over_bound", over_bound}};
}

Json background_json(const ClusterCase& one, const std::vector<Json>& runs) {
    Json background = Json::object();
    for (const BulkFlows& flows : one.background) {
        std::vector<double> gbit;
        for (const Json& run : runs)
            gbit.push_back(run.at("background").at(flows.name).get<double>() / 1e9);
        background[flows.name] = {{"flows", flows.pairs.size() * flows.connections},
                                  {"goodput_gbit", spread(gbit)}};
    }
    return background;
}

/// By place the sum of all repeats, without the places that lost nothing.
Json drops_json(const std::vector<Json>& runs) {
    std::vector<double> totals;
    Json by_place = Json::object();
    for (const Json& run : runs) {
        double total = 0;
        for (const auto& [place, count] : run.at("drops").items()) {
            total += count.get<double>();
            if (count.get<std::uint64_t>() > 0)
                by_place[place] =
                    by_place.value(place, std::uint64_t{0}) + count.get<std::uint64_t>();
        }
        totals.push_back(total);
    }
    Json drops = spread(totals);
    drops["by_place"] = std::move(by_place);
    return drops;
}

Json timelines_json(const Json& run) {
    Json timelines = Json::object();
    for (const auto& [name, job] : run.at("jobs").items()) {
        if (job.contains("timeline"))
            timelines[name] = job["timeline"];
    }
    return timelines;
}

/// The result of ONE among those of an earlier run, or null.
Json find_earlier(const Json& cases, const ClusterCase& one) {
    for (const Json& result : cases) {
        if (result.value("name", "") == one.name() && !result.contains("error") &&
            result.value("settings", Json()) == settings_json(one))
            return result;
    }
    return {};
}

}  // namespace

Json case_result(const ClusterCase& one, const std::vector<Json>& runs, double real_seconds) {
    Json result = headline(one);
    Json jobs = Json::object();
    for (const CaseJob& job : one.jobs)
        jobs[job.name] = job_json(one, job, runs);
    result["jobs"] = std::move(jobs);
    result["background"] = background_json(one, runs);
    result["retransmits"] = spread(values_of(runs, "retransmits"));
    result["timeouts"] = spread(values_of(runs, "timeouts"));
    result["drops"] = drops_json(runs);
    result["timeline"] = timelines_json(runs.front());
    result["real_seconds"] = rounded(real_seconds);
    return result;
}

Json case_failure(const ClusterCase& one, const std::string& error) {
    Json result = headline(one);
    result["error"] = error;
    return result;
}

Json experiment_result(const ClusterExperiment& experiment, const std::vector<Json>& cases,
                       bool virtual_time) {
    Json dimensions = Json::object();
    for (const auto& [dimension, labels] : experiment.dimensions)
        dimensions[dimension] = labels;
    Json report = Json::object();
    for (const auto& [key, value] : {std::pair{"compare", experiment.compare},
                                     {"baseline", experiment.baseline},
                                     {"x", experiment.x}}) {
        if (!value.empty())
            report[key] = value;
    }
    Json done = Json::array();
    std::copy_if(cases.begin(), cases.end(), std::back_inserter(done),
                 [](const Json& one) { return !one.is_null(); });
    const bool complete = done.size() == experiment.cases.size() &&
                          std::none_of(done.begin(), done.end(),
                                       [](const Json& one) { return one.contains("error"); });
    return {{"experiment", experiment.name},
            {"title", experiment.title},
            {"description", experiment.description},
            {"file", experiment.path},
            {"virtual_time", virtual_time},
            {"complete", complete},
            {"dimensions", std::move(dimensions)},
            {"report", std::move(report)},
            {"cases", std::move(done)}};
}

Result<std::vector<Json>> earlier_results(const ClusterExperiment& experiment,
                                          const std::string& path) {
    std::vector<Json> results(experiment.cases.size());
    if (!std::filesystem::exists(path))
        return results;
    std::ifstream file(path, std::ios::binary);
    const Json earlier = Json::parse(file, nullptr, false);
    if (!earlier.is_object() || !earlier.value("cases", Json()).is_array())
        return Error{fmt::format("{}: is not the result of a cluster experiment", path)};
    for (std::size_t i = 0; i < results.size(); ++i)
        results[i] = find_earlier(earlier["cases"], experiment.cases[i]);
    return results;
}

Result<void> write_atomically(const std::string& path, const std::string& content) {
    const std::string next = path + ".new";
    std::ofstream file(next, std::ios::binary);
    file << content;
    file.close();
    if (!file)
        return system_error(next);
    if (std::rename(next.c_str(), path.c_str()) != 0)
        return system_error(path);
    return {};
}

std::string describe_case(const Json& result) {
    if (result.contains("error"))
        return "failed: " + result["error"].get<std::string>();
    std::string text;
    for (const auto& [name, job] : result.at("jobs").items()) {
        const Json& times = job.at("iteration_ms");
        text += fmt::format("{}{}{:.1f} ms ({:.1f} to {:.1f}), {:.3f} of the bound",
                            text.empty() ? "" : "; ", result["jobs"].size() > 1 ? name + " " : "",
                            times["median"].get<double>(), times["min"].get<double>(),
                            times["max"].get<double>(), job["over_bound"].get<double>());
    }
    for (const auto& [name, flows] : result.at("background").items())
        text +=
            fmt::format("; {} {:.2f} Gbit/s", name, flows["goodput_gbit"]["median"].get<double>());
    return text;
}

}  // namespace mercury::replay
