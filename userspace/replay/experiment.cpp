// SPDX-License-Identifier: MIT
#include "replay/experiment.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <arpa/inet.h>

#include <fmt/format.h>

#include "replay/bound.hpp"
#include "replay/upload.hpp"

namespace mercury::replay {
namespace {

// pfifo and fq get limits that they never reach: a lost packet would be a second difference.
constexpr std::array arms{
    Arm{"fifo",
        "whole layers in the order in which they are ready; the server returns whole layers", true,
        Answer::whole_layers, "pfifo limit 100000"},
    Arm{"overlap", "the same, but the server returns bytes as they arrive", true, Answer::at_once,
        "pfifo limit 100000"},
    Arm{"pfifo", "the same, but on connections for each class", false, Answer::at_once,
        "pfifo limit 100000"},
    Arm{"fq", "the same connections, each its equal share of the link", false, Answer::at_once,
        "fq limit 100000 flow_limit 100000"},
    Arm{"mercury", "the same connections, sch_mercury sends first what is needed first", false,
        Answer::at_once, "mercury"},
};

constexpr in_port_t first_port = 4000;
constexpr in_port_t first_upload_port = 5000;
/// A bulk transfer that measures the link: 50 ms of it, but enough for TCP to get going.
constexpr double probe_seconds = 0.05;
constexpr std::uint64_t probe_bytes_min = 2'000'000;

/// How the layers of a profile are spread over classes of connections.
struct Plan {
    std::vector<std::size_t> class_of_layer;
    std::vector<std::size_t> first_layer;  // by class
    std::size_t max_classes = 1;           // that led to these
};

Plan one_class(const Profile& profile) {
    return {std::vector<std::size_t>(profile.layers.size(), 0), {0}, 1};
}

Plan by_priority(const std::vector<PriorityClass>& classes, std::size_t max_classes) {
    Plan plan;
    plan.max_classes = max_classes;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        plan.class_of_layer.resize(classes[i].last + 1, i);
        plan.first_layer.push_back(classes[i].first);
    }
    return plan;
}

/// Who gives the connections of a training their marks: mercuryd at PATH, or nothing if this
/// program does.
Result<std::unique_ptr<hints::Client>> hint_client(const std::optional<std::string>& path,
                                                   const Profile& profile, std::size_t classes) {
    if (!path)
        return std::unique_ptr<hints::Client>{};
    auto client = std::make_unique<hints::Client>(path->empty() ? hints::socket_path() : *path);
    const auto outcome = client->declare({"replay demo", profile.layers, classes, {}});
    if (outcome == hints::Outcome::Done)
        return client;
    return Error{fmt::format("mercuryd does not take the job: {}",
                             outcome < hints::Outcome::Done ? client->error() : client->why())};
}

// In the network.
constexpr std::size_t worker_host = 0;
constexpr std::size_t server_host = 1;

Result<TrainingLog> train_over(const Network& network, const Profile& profile, const Plan& plan,
                               Answer answer, std::size_t iterations,
                               const std::optional<std::string>& hints, int interrupt_fd) {
    const auto client = hint_client(hints, profile, plan.max_classes);
    if (!client)
        return client.error();
    Ends worker;
    Ends server;
    Endpoint endpoint;
    in_port_t port = first_port;
    for (const auto direction : {&Ends::push, &Ends::pull}) {
        for (std::size_t c = 0; c < plan.first_layer.size(); ++c) {
            endpoint.mark = hints ? 0 : mark_of_class(0, c);
            endpoint.hints = client.value().get();
            endpoint.layer = plan.first_layer[c];
            endpoint.address.sin_port = htons(port++);
            auto connection = connect_hosts(network, worker_host, server_host, endpoint);
            if (!connection)
                return connection.error();
            (worker.*direction).push_back(std::move(connection.value().from));
            (server.*direction).push_back(std::move(connection.value().to));
        }
    }
    return train(profile, plan.class_of_layer, std::move(worker), std::move(server), answer,
                 iterations, interrupt_fd);
}

/// Bits a second between the first and the last byte of a single message.
double goodput_of(const std::vector<Arrival>& arrivals) {
    if (arrivals.size() < 2)
        return 0;
    const std::chrono::duration<double> time = arrivals.back().when - arrivals.front().when;
    const auto bytes = static_cast<double>(arrivals.front().message.bytes - arrivals.front().bytes);
    return time.count() > 0 ? bytes * 8 / time.count() : 0;
}

/// What one bulk layer gets of the link, with nothing to compute: shows that the shaper and not
/// the qdisc below it decides, so that the arms differ in order alone.
Result<double> measure_goodput(const Network& network, const Settings& settings, int interrupt_fd) {
    const auto bytes = static_cast<std::uint64_t>(tcp_goodput(settings.rate) / 8 * probe_seconds);
    const Profile bulk{"bulk", "", {{"bulk", {}, {}, std::max(bytes, probe_bytes_min)}}};
    const auto log = train_over(network, bulk, one_class(bulk), Answer::whole_layers, 2,
                                settings.hints, interrupt_fd);
    if (!log)
        return log.error();
    // Without the first iteration, which contains slow start.
    const auto second = [](const std::vector<Arrival>& all) {
        std::vector<Arrival> arrivals;
        std::copy_if(all.begin(), all.end(), std::back_inserter(arrivals),
                     [](const Arrival& arrival) { return arrival.message.iteration == 2; });
        return arrivals;
    };
    return std::min(goodput_of(second(log.value().pushed)),
                    goodput_of(second(log.value().worker.pulled)));
}

/// Picks the median and the iteration that stands for it, and keeps the details of that one only.
void evaluate(TrainingLog log, std::size_t warm_up, ArmResult& result) {
    std::vector<std::size_t> order;  // of the measured iterations, by time
    const auto& iterations = log.worker.iterations;
    const auto time_of = [&](std::size_t i) { return iterations[i].end - iterations[i].start; };
    for (std::size_t i = warm_up; i < iterations.size(); ++i) {
        order.push_back(i);
        result.iterations.push_back(time_of(i));
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return time_of(a) < time_of(b); });
    const std::size_t lower = order[(order.size() - 1) / 2];
    const std::size_t upper = order[order.size() / 2];
    result.median = (time_of(lower) + time_of(upper)) / 2;

    result.typical = iterations[lower];
    const auto keep = [number = lower + 1](std::vector<Arrival>& arrivals) {
        std::erase_if(arrivals, [number](const Arrival& arrival) {
            return arrival.message.iteration != number;
        });
        return std::move(arrivals);
    };
    result.pushed = keep(log.pushed);
    result.pulled = keep(log.worker.pulled);
    result.retransmits = log.retransmits;
}

using Uploads = std::vector<std::unique_ptr<Upload>>;

Result<Uploads> start_uploads(const Network& network, std::size_t count) {
    Uploads uploads;
    Endpoint endpoint;
    for (std::size_t i = 0; i < count; ++i) {
        endpoint.address.sin_port = htons(static_cast<in_port_t>(first_upload_port + i));
        auto connection = connect_hosts(network, worker_host, server_host, endpoint);
        if (!connection)
            return connection.error();
        uploads.push_back(std::make_unique<Upload>(std::move(connection.value().from),
                                                   std::move(connection.value().to)));
    }
    return uploads;
}

Result<ArmResult> run_arm(const Arm& arm, const Experiment& experiment, int interrupt_fd) {
    const Settings& settings = experiment.settings;
    NetworkSettings wanted;
    wanted.rate = settings.rate;
    wanted.delay = settings.delay;
    wanted.qdisc = {std::string(arm.qdisc)};
    const auto network = Network::build(wanted);
    if (!network)
        return network.error();

    const auto goodput = measure_goodput(network.value(), settings, interrupt_fd);
    if (!goodput)
        return goodput.error();

    const Plan plan = arm.one_class ? one_class(experiment.profile)
                                    : by_priority(experiment.classes, settings.max_classes);
    const auto uploads = start_uploads(network.value(), settings.uploads);
    if (!uploads)
        return uploads.error();
    auto log = train_over(network.value(), experiment.profile, plan, arm.answer,
                          settings.warm_up + settings.iterations, settings.hints, interrupt_fd);
    if (!log)
        return log.error();
    const auto drops = network.value().drops();
    if (!drops)
        return drops.error();

    ArmResult result;
    result.arm = &arm;
    result.connections = 2 * plan.first_layer.size();
    result.goodput = goodput.value();
    result.drops = drops.value().total();
    for (const auto& upload : uploads.value())
        result.upload_goodput += upload->goodput();
    evaluate(std::move(log).value(), settings.warm_up, result);
    return result;
}

}  // namespace

std::span<const Arm> all_arms() {
    return arms;
}

Result<std::vector<const Arm*>> parse_arms(std::string_view names) {
    std::vector<const Arm*> chosen;
    for (std::size_t start = 0; start <= names.size();) {
        const std::size_t end = std::min(names.find(',', start), names.size());
        const std::string_view name = names.substr(start, end - start);
        start = end + 1;
        const auto* const arm = std::find_if(
            arms.begin(), arms.end(), [&](const Arm& candidate) { return candidate.name == name; });
        if (arm == arms.end()) {
            std::string known;
            for (const Arm& candidate : arms)
                known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate.name);
            return Error{fmt::format("arm \"{}\" is none of {}", name, known)};
        }
        if (std::find(chosen.begin(), chosen.end(), arm) != chosen.end())
            return Error{fmt::format("arm \"{}\" is given twice", name)};
        chosen.push_back(arm);
    }
    return chosen;
}

Result<TrainingLog> train(const Profile& profile, const std::vector<std::size_t>& class_of_layer,
                          Ends worker_ends, Ends server_ends, Answer answer, std::size_t iterations,
                          int interrupt_fd) {
    Server server(std::move(server_ends), answer);
    Worker worker(profile, class_of_layer, std::move(worker_ends));
    auto worker_log = worker.train(iterations, interrupt_fd);
    auto server_log = server.stop();
    // If the server died, that is why the worker failed.
    if (!server_log)
        return server_log.error();
    if (!worker_log)
        return worker_log.error();

    const std::uint64_t retransmits =
        worker_log.value().retransmits + server_log.value().retransmits;
    return TrainingLog{std::move(worker_log).value(), std::move(server_log.value().pushed),
                       retransmits};
}

Result<Experiment> run_experiment(Profile profile, const Settings& settings, int interrupt_fd,
                                  const std::function<void(const Arm&)>& progress) {
    auto classes = group_layers(profile, settings.max_classes);
    if (!classes)
        return classes.error();
    Experiment experiment{settings, std::move(profile), std::move(classes).value(), {}};
    for (const Arm* arm : settings.arms) {
        progress(*arm);
        auto result = run_arm(*arm, experiment, interrupt_fd);
        if (!result)
            return Error{fmt::format("arm {}: {}", arm->name, result.error().message)};
        experiment.arms.push_back(std::move(result).value());
    }
    return experiment;
}

}  // namespace mercury::replay
