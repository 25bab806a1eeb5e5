// SPDX-License-Identifier: MIT
#include "replay/strategy_ps.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

/// An acknowledgement is a message of its own, backwards on the connection of the push.
constexpr std::uint64_t acknowledgement_bytes = 1;

Error never_sent(const std::string& peer, const Arrival& arrival) {
    return Error{fmt::format("{} sent {} bytes of chunk {} in iteration {}, which is not its turn",
                             peer, arrival.message.bytes, arrival.message.layer,
                             arrival.message.iteration)};
}

/// Whether ARRIVAL continues, at POSITION, a chunk that SERVER has.
bool continues(const Plan& plan, std::uint32_t server, const Arrival& arrival,
               const std::vector<std::uint64_t>& positions) {
    const std::uint32_t index = arrival.message.layer;
    if (index >= plan.chunks().size() || plan.chunks()[index].server != server)
        return false;
    const std::uint64_t size = plan.chunks()[index].bytes;
    return positions[index] / size + 1 == arrival.message.iteration &&
           positions[index] % size + arrival.bytes <= size;
}

std::string server_name(std::size_t index) {
    return fmt::format("server {}", index);
}

std::string worker_name(std::size_t rank) {
    return fmt::format("worker {}", rank);
}

}  // namespace

PsWorker::PsWorker(const Profile& profile, std::shared_ptr<const Plan> plan, const PsPolicy& policy,
                   Ends links, std::shared_ptr<Progress> progress)
    : profile_(profile),
      plan_(std::move(plan)),
      credits_(policy.push.credit != unlimited),
      progress_(std::move(progress)),
      sender_(policy.push, *plan_),
      pushed_(plan_->chunks().size()),
      acknowledged_(pushed_.size()),
      returned_(pushed_.size()),
      missing_(profile.layers.size()) {
    for (std::uint32_t server = 0; server < links.push.size(); ++server) {
        Channel& push = push_.emplace_back(std::move(links.push[server]), server_name(server));
        pull_.emplace_back(std::move(links.pull[server]), server_name(server));
        sender_.add_peer(push, server);
    }
}

Result<void> PsWorker::attach(Reactor& reactor) {
    for (std::uint32_t server = 0; server < push_.size(); ++server) {
        auto attached = push_[server].attach(reactor, [this, server](const Arrival& arrival) {
            return acknowledged(server, arrival);
        });
        if (!attached)
            return attached;
        attached = pull_[server].attach(
            reactor, [this, server](const Arrival& arrival) { return pulled(server, arrival); });
        if (!attached)
            return attached;
    }
    return sender_.attach(reactor);
}

Result<void> PsWorker::push(std::size_t layer) {
    const auto [first, end] = plan_->of_layer(layer);
    missing_[layer] = profile_.layers[layer].bytes;
    for (std::uint32_t index = first; index < end; ++index) {
        const Chunk& chunk = plan_->chunks()[index];
        pushed_[index] += chunk.bytes;
        sender_.offer(chunk.server, index, pushed_[index]);
    }
    return sender_.pump();
}

Result<void> PsWorker::pulled(std::uint32_t server, const Arrival& arrival) {
    const std::uint32_t chunk = arrival.message.layer;
    if (!continues(*plan_, server, arrival, returned_) ||
        returned_[chunk] + arrival.bytes > pushed_[chunk])
        return never_sent(server_name(server), arrival);
    progress_->bytes_came();
    returned_[chunk] += arrival.bytes;
    const std::uint32_t layer = plan_->chunks()[chunk].layer;
    missing_[layer] -= arrival.bytes;
    if (missing_[layer] == 0)
        progress_->came_back(layer);
    return {};
}

Result<void> PsWorker::acknowledged(std::uint32_t server, const Arrival& arrival) {
    const std::uint32_t chunk = arrival.message.layer;
    if (!credits_ || chunk >= plan_->chunks().size() || plan_->chunks()[chunk].server != server ||
        acknowledged_[chunk] + plan_->chunks()[chunk].bytes > sender_.position(server, chunk))
        return never_sent(server_name(server), arrival);
    progress_->bytes_came();
    acknowledged_[chunk] += plan_->chunks()[chunk].bytes;
    sender_.acknowledge(plan_->chunks()[chunk].bytes);
    return sender_.pump();
}

PsServer::PsServer(std::shared_ptr<const Plan> plan, const PsPolicy& policy, std::uint32_t index,
                   Ends links)
    : plan_(std::move(plan)),
      streaming_(policy.streaming),
      acknowledges_(policy.push.credit != unlimited),
      index_(index),
      sender_(policy.pull, *plan_),
      delivered_(links.push.size(), std::vector<std::uint64_t>(plan_->chunks().size())),
      answered_(plan_->chunks().size()) {
    for (std::size_t worker = 0; worker < links.push.size(); ++worker) {
        push_.emplace_back(std::move(links.push[worker]), worker_name(worker));
        Channel& pull = pull_.emplace_back(std::move(links.pull[worker]), worker_name(worker));
        sender_.add_peer(pull, index);
    }
}

Result<void> PsServer::attach(Reactor& reactor) {
    for (std::size_t worker = 0; worker < push_.size(); ++worker) {
        auto attached = push_[worker].attach(
            reactor, [this, worker](const Arrival& arrival) { return pushed(worker, arrival); });
        if (!attached)
            return attached;
        attached = pull_[worker].attach(reactor, [worker](const Arrival& arrival) -> Result<void> {
            return never_sent(worker_name(worker), arrival);
        });
        if (!attached)
            return attached;
    }
    return sender_.attach(reactor);
}

Result<void> PsServer::push(std::size_t layer) {
    return Error{fmt::format("layer {} was pushed at server {}", layer, index_)};
}

Result<void> PsServer::pushed(std::size_t worker, const Arrival& arrival) {
    auto& positions = delivered_[worker];
    if (!continues(*plan_, index_, arrival, positions))
        return never_sent(worker_name(worker), arrival);
    const std::uint32_t chunk = arrival.message.layer;
    positions[chunk] += arrival.bytes;
    const bool whole = positions[chunk] % plan_->chunks()[chunk].bytes == 0;
    if (whole && acknowledges_) {
        auto sent = push_[worker].send({arrival.message.iteration, chunk, acknowledgement_bytes});
        if (!sent)
            return sent;
    }
    return whole || streaming_ ? answer(chunk) : Result<void>{};
}

/// Offers what all workers have delivered of CHUNK by now.
Result<void> PsServer::answer(std::uint32_t chunk) {
    std::uint64_t finished = unlimited;
    for (const auto& positions : delivered_)
        finished = std::min(finished, positions[chunk]);
    if (!streaming_)
        finished -= finished % plan_->chunks()[chunk].bytes;
    if (finished == answered_[chunk])
        return {};
    answered_[chunk] = finished;
    for (std::size_t worker = 0; worker < delivered_.size(); ++worker)
        sender_.offer(worker, chunk, finished);
    return sender_.pump();
}

Result<std::unique_ptr<Exchange>> PsStrategy::connect_by(const Job& job,
                                                         const Connector& connector) {
    if (job.workers.empty() || job.servers.empty())
        return Error{fmt::format("job {} needs at least one worker and one server", job.name)};
    std::vector<Ends> workers(job.workers.size());
    std::vector<Ends> servers(job.servers.size());
    Linker linker(job, connector, policy_.links);
    for (std::size_t w = 0; w < workers.size(); ++w) {
        for (std::size_t s = 0; s < servers.size(); ++s) {
            for (const auto& [direction, late] : {std::pair{&Ends::push, policy_.push.late},
                                                  std::pair{&Ends::pull, policy_.pull.late}}) {
                auto connection = linker.link(job.workers[w], job.servers[s], late);
                if (!connection)
                    return connection.error();
                (workers[w].*direction).push_back(std::move(connection.value().from));
                (servers[s].*direction).push_back(std::move(connection.value().to));
            }
        }
    }

    const auto plan = std::make_shared<const Plan>(
        policy_.slice == 0 ? Plan::shards(job.profile, servers.size())
                           : Plan::slices(job.profile, servers.size(), policy_.slice));
    std::vector<std::unique_ptr<Node>> server_nodes;
    for (std::uint32_t s = 0; s < servers.size(); ++s)
        server_nodes.push_back(std::make_unique<PsServer>(plan, policy_, s, std::move(servers[s])));
    std::vector<WorkerNode> worker_nodes;
    for (Ends& ends : workers) {
        const auto progress = std::make_shared<Progress>(job.profile);
        worker_nodes.push_back(
            {std::make_unique<PsWorker>(job.profile, plan, policy_, std::move(ends), progress),
             progress});
    }
    return start_exchange(std::move(worker_nodes), std::move(server_nodes));
}

}  // namespace mercury::replay
