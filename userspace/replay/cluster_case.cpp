// SPDX-License-Identifier: MIT
#include "replay/cluster_case.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::size_t> hosts_of(const Placement& placement) {
    std::vector<std::size_t> hosts = placement.workers;
    hosts.insert(hosts.end(), placement.servers.begin(), placement.servers.end());
    std::sort(hosts.begin(), hosts.end());
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    return hosts;
}

Json profile_json(const Profile& profile) {
    Json layers = Json::array();
    for (const Layer& layer : profile.layers)
        layers.push_back({layer.bytes, layer.forward.count(), layer.backward.count()});
    return layers;
}

Json job_json(const CaseJob& job) {
    return {{"model", job.model},
            {"strategy", job.strategy},
            {"number", job.number},
            {"workers", job.hosts.workers},
            {"servers", job.hosts.servers},
            // A model's definition may change under its name.
            {"layers_digest", std::hash<std::string>{}(profile_json(job.profile).dump())},
            {"bytes", job.profile.bytes()},
            {"compute_ms", to_ms(job.profile.compute())}};
}

}  // namespace

std::string ClusterCase::name() const {
    std::string name;
    for (const auto& [dimension, label] : labels)
        name += fmt::format("{}{}", name.empty() ? "" : ", ", label);
    if (!variant.empty())
        name += fmt::format("{}{}", name.empty() ? "" : ", ", variant);
    return name.empty() ? "the only case" : name;
}

Bound bound_of(const CaseJob& job, const NetworkSettings& network) {
    return bound_of(job.profile, job.hosts, network.rate, network.mtu);
}

std::chrono::nanoseconds bound_with_changes(const ClusterCase& one, const CaseJob& job) {
    std::vector<NicLoad> nics;
    for (const std::size_t host : hosts_of(job.hosts)) {
        NicLoad nic{wire_time(nic_bytes(job.profile.bytes(), job.hosts, host), one.network.rate,
                              one.network.mtu),
                    {}};
        for (const RateChange& change : one.rate_changes) {
            if (change.host == host)
                nic.dips.push_back({change.at, change.length, change.factor});
        }
        nics.push_back(std::move(nic));
    }
    return bound_of_run(job.profile.compute(), nics, one.run.iterations) /
           static_cast<std::int64_t>(one.run.iterations);
}

double bytes_moved(const ClusterCase& one) {
    std::chrono::nanoseconds longest{0};  // the measured part and the warm-up
    const auto iterations = one.run.warm_up + one.run.iterations;
    for (const CaseJob& job : one.jobs) {
        longest = std::max(
            longest, bound_of(job, one.network).total() * static_cast<std::int64_t>(iterations));
    }
    double bytes = 0;
    for (const CaseJob& job : one.jobs) {
        double an_iteration = 0;
        for (const std::size_t host : hosts_of(job.hosts))
            an_iteration += nic_bytes(job.profile.bytes(), job.hosts, host);
        // The quicker job trains for as long as the other one.
        const auto alone = bound_of(job, one.network).total();
        bytes += an_iteration * (static_cast<double>(longest.count()) /
                                 static_cast<double>(std::max<std::int64_t>(alone.count(), 1)));
    }
    // Bulk flows use what is left of their senders' links.
    double senders = 0;
    for (const BulkFlows& flows : one.background) {
        std::vector<std::size_t> hosts;
        for (const auto& [from, to] : flows.pairs)
            hosts.push_back(from);
        std::sort(hosts.begin(), hosts.end());
        senders += static_cast<double>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
    }
    const double seconds = std::chrono::duration<double>(longest).count();
    const double bulk = senders * tcp_goodput(one.network.rate, one.network.mtu) / 8 * seconds;
    return (bytes + bulk / 2) * static_cast<double>(one.run.repeats);
}

nlohmann::ordered_json settings_json(const ClusterCase& one) {
    Json network{{"hosts", one.network.hosts},
                 {"rate", to_string(one.network.rate)},
                 {"delay", time_to_string(one.network.delay)},
                 {"mtu", one.network.mtu},
                 {"qdisc", one.network.qdisc}};
    if (one.network.ports) {
        network["switch"] = {{"buffer", one.network.ports->buffer},
                             {"queues", one.network.ports->queues}};
    }
    Json jobs = Json::object();
    for (const CaseJob& job : one.jobs)
        jobs[job.name] = job_json(job);
    Json background = Json::object();
    for (const BulkFlows& flows : one.background)
        background[flows.name] = {{"pairs", flows.pairs}, {"connections", flows.connections}};
    Json changes = Json::object();
    for (const RateChange& change : one.rate_changes) {
        changes[change.name] = {{"host", change.host},
                                {"at", time_to_string(change.at)},
                                {"for", time_to_string(change.length)},
                                {"factor", change.factor}};
    }
    return {{"network", network},
            {"jobs", jobs},
            {"background", background},
            {"rate_changes", changes},
            {"run",
             {{"warm_up", one.run.warm_up},
              {"iterations", one.run.iterations},
              {"repeats", one.run.repeats}}}};
}

}  // namespace mercury::replay
