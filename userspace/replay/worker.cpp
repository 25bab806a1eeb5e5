// SPDX-License-Identifier: MIT
#include "replay/worker.hpp"

#include <utility>

#include <sys/epoll.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

/// A worker that waits while no byte moves for so long gives up.
constexpr std::chrono::seconds stall_limit{30};

}  // namespace

Worker::Worker(const Profile& profile, std::vector<std::size_t> class_of_layer, Ends ends)
    : profile_(profile), class_of_layer_(std::move(class_of_layer)) {
    for (Fd& socket : ends.push)
        push_.emplace_back(std::move(socket), "the server");
    for (Fd& socket : ends.pull)
        pull_.emplace_back(std::move(socket), "the server");
}

Result<WorkerLog> Worker::train(std::size_t iterations, int interrupt_fd) {
    iterations_ = iterations;
    if (const auto attached = attach(interrupt_fd); !attached)
        return attached.error();
    if (const auto started = start_iteration(Clock::now()); !started)
        return started.error();
    if (const auto done = reactor_.run(); !done)
        return done.error();
    for (const auto* channels : {&push_, &pull_}) {
        for (const Channel& channel : *channels)
            log_.retransmits += channel.retransmits();
    }
    return std::move(log_);
}

Result<void> Worker::attach(int interrupt_fd) {
    for (auto* channels : {&push_, &pull_}) {
        for (Channel& channel : *channels) {
            auto attached = channel.attach(
                reactor_, [this](const Arrival& arrival) { return arrived(arrival); });
            if (!attached)
                return attached;
        }
    }
    if (auto attached = compute_timer_.attach(reactor_, [this] { return computed(); }); !attached)
        return attached;
    if (auto attached = stall_timer_.attach(reactor_, [this] { return check_progress(); });
        !attached)
        return attached;
    if (interrupt_fd < 0)
        return {};
    return reactor_.watch(interrupt_fd, EPOLLIN,
                          [](std::uint32_t) -> Result<void> { return Error{"interrupted"}; });
}

Result<void> Worker::start_iteration(Clock::time_point now) {
    const std::size_t layers = profile_.layers.size();
    log_.iterations.push_back({now, now, std::vector<Span>(layers), std::vector<Span>(layers)});
    missing_.clear();
    for (const Layer& layer : profile_.layers)
        missing_.push_back(layer.bytes);
    phase_ = Phase::backward;
    layer_ = layers - 1;
    return compute(now);
}

/// Starts to compute layer_ in the current phase.
Result<void> Worker::compute(Clock::time_point now) {
    const Layer& layer = profile_.layers[layer_];
    const bool backward = phase_ == Phase::backward;
    compute_end_ = now + (backward ? layer.backward : layer.forward);
    IterationLog& iteration = log_.iterations.back();
    (backward ? iteration.backward : iteration.forward)[layer_] = {now, compute_end_};
    return compute_timer_.arm(compute_end_);
}

/// layer_ is computed. What follows starts at compute_end_, whenever this thread woke up.
Result<void> Worker::computed() {
    const auto now = compute_end_;
    if (phase_ == Phase::backward)
        return backward_done(now);
    if (++layer_ < profile_.layers.size())
        return forward_if_back(now);

    log_.iterations.back().end = now;
    if (log_.iterations.size() < iterations_)
        return start_iteration(now);
    reactor_.stop();
    return {};
}

Result<void> Worker::backward_done(Clock::time_point now) {
    const Message gradient{static_cast<std::uint32_t>(log_.iterations.size()),
                           static_cast<std::uint32_t>(layer_), profile_.layers[layer_].bytes};
    if (auto sent = push_[class_of_layer_[layer_]].send(gradient); !sent)
        return sent;
    if (layer_ > 0) {
        --layer_;
        return compute(now);
    }
    phase_ = Phase::forward;
    return forward_if_back(now);
}

Result<void> Worker::forward_if_back(Clock::time_point now) {
    waiting_ = missing_[layer_] > 0;
    if (!waiting_)
        return compute(now);
    return watch_progress(now);
}

Result<void> Worker::arrived(const Arrival& arrival) {
    const Message& message = arrival.message;
    if (message.iteration != log_.iterations.size() || message.layer >= missing_.size() ||
        arrival.bytes > missing_[message.layer]) {
        return Error{fmt::format(
            "the server returned {} bytes as layer {} of iteration {}, which were never sent",
            message.bytes, message.layer, message.iteration)};
    }
    log_.pulled.push_back(arrival);
    missing_[message.layer] -= arrival.bytes;
    if (waiting_ && message.layer == layer_ && missing_[layer_] == 0) {
        waiting_ = false;
        return compute(arrival.when);
    }
    return {};
}

Result<void> Worker::watch_progress(Clock::time_point now) {
    stall_seen_ = bytes_moved();
    return stall_timer_.arm(now + stall_limit);
}

Result<void> Worker::check_progress() {
    if (!waiting_)
        return {};
    if (bytes_moved() == stall_seen_) {
        return Error{fmt::format(
            "no byte moved for {} s while the forward pass of iteration {} waits for layer {} ({})",
            stall_limit.count(), log_.iterations.size(), layer_, profile_.layers[layer_].name)};
    }
    return watch_progress(Clock::now());
}

std::uint64_t Worker::bytes_moved() const {
    std::uint64_t bytes = 0;
    for (const auto* channels : {&push_, &pull_}) {
        for (const Channel& channel : *channels)
            bytes += channel.bytes_moved();
    }
    return bytes;
}

}  // namespace mercury::replay
