// SPDX-License-Identifier: MIT
#include "replay/strategy_io.hpp"

#include <chrono>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

/// A trainer that waits while nothing comes in for so long gives up.
constexpr std::chrono::seconds stall_limit{30};

class WorkerEnd final : public Communicator {
  public:
    WorkerEnd(WorkerNode parts, std::shared_ptr<FirstError> first_error)
        : progress_(parts.progress),
          io_(std::move(parts.node), parts.progress, std::move(first_error)) {}

    Result<void> push(std::size_t layer) override {
        if (auto noted = progress_->push(layer); !noted)
            return noted;
        io_.push(layer);
        return {};
    }
    Result<void> wait(std::size_t layer) override {
        const auto progress = progress_;  // outlives this if the exchange is closed meanwhile
        return progress->wait(layer);
    }

    void request_stop() { io_.request_stop(); }

  private:
    std::shared_ptr<Progress> progress_;
    IoThread io_;
};

class SocketExchange final : public Exchange {
  public:
    SocketExchange(std::vector<WorkerNode> workers, std::vector<std::unique_ptr<Node>> servers) {
        const auto first_error = std::make_shared<FirstError>();
        for (auto& server : servers)
            servers_.push_back(std::make_unique<IoThread>(std::move(server), nullptr, first_error));
        for (auto& worker : workers)
            workers_.push_back(std::make_unique<WorkerEnd>(std::move(worker), first_error));
    }

    // All are told before the first one closes its connections.
    ~SocketExchange() override {
        for (const auto& worker : workers_)
            worker->request_stop();
        for (const auto& server : servers_)
            server->request_stop();
    }

    Communicator& worker(std::size_t rank) override { return *workers_.at(rank); }

  private:
    std::vector<std::unique_ptr<IoThread>> servers_;
    std::vector<std::unique_ptr<WorkerEnd>> workers_;
};

}  // namespace

Progress::Progress(const Profile& profile) : profile_(profile), out_(profile.layers.size()) {}

Result<void> Progress::push(std::size_t layer) {
    const std::lock_guard lock(mutex_);
    if (failure_)
        return *failure_;
    if (layer >= out_.size())
        return Error{
            fmt::format("layer {} is pushed, but {} has {}", layer, profile_.name, out_.size())};
    if (out_[layer])
        return Error{fmt::format("layer {} ({}) is pushed again before it has come back", layer,
                                 profile_.layers[layer].name)};
    out_[layer] = true;
    return {};
}

Result<void> Progress::wait(std::size_t layer) {
    std::unique_lock lock(mutex_);
    while (out_.at(layer)) {
        if (failure_)
            return *failure_;
        const auto seen = moved_.load();
        if (changed_.wait_for(lock, stall_limit) == std::cv_status::timeout && moved_ == seen &&
            out_[layer] && !failure_) {
            return Error{fmt::format("nothing came in for {} s while layer {} ({}) is waited for",
                                     stall_limit.count(), layer, profile_.layers[layer].name)};
        }
    }
    return {};
}

void Progress::came_back(std::size_t layer) {
    {
        const std::lock_guard lock(mutex_);
        out_[layer] = false;
    }
    changed_.notify_all();
}

void Progress::fail(const Error& error) {
    {
        const std::lock_guard lock(mutex_);
        failure_ = error;
    }
    changed_.notify_all();
}

Error FirstError::keep(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!first_)
        first_ = error;
    return *first_;
}

IoThread::IoThread(std::unique_ptr<Node> node, std::shared_ptr<Progress> progress,
                   std::shared_ptr<FirstError> first_error)
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      progress_(std::move(progress)),
      first_error_(std::move(first_error)),
      thread_([this, node = std::move(node)]() mutable {
          run(*node);
          node.reset();  // its peers notice
      }) {}

IoThread::~IoThread() {
    request_stop();
    thread_.join();
}

void IoThread::push(std::size_t layer) {
    {
        const std::lock_guard lock(mutex_);
        pushed_.push_back(layer);
    }
    eventfd_write(wake_.get(), 1);
}

void IoThread::request_stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    eventfd_write(wake_.get(), 1);
}

void IoThread::run(Node& node) {
    const auto served = serve(node);
    const Error why =
        served ? Error{"the exchange was closed"} : first_error_->keep(served.error());
    if (progress_)
        progress_->fail(why);
}

Result<void> IoThread::serve(Node& node) {
    Reactor reactor;
    auto watched = reactor.watch(
        wake_.get(), EPOLLIN, [&](std::uint32_t /*events*/) { return take_pushed(node, reactor); });
    if (!watched)
        return watched;
    if (auto attached = node.attach(reactor); !attached)
        return attached;
    return reactor.run();
}

Result<void> IoThread::take_pushed(Node& node, Reactor& reactor) {
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
    std::vector<std::size_t> layers;
    {
        const std::lock_guard lock(mutex_);
        layers.swap(pushed_);
        if (stop_)
            reactor.stop();
    }
    for (const std::size_t layer : layers) {
        if (auto taken = node.push(layer); !taken)
            return taken;
    }
    return {};
}

std::unique_ptr<Exchange> start_exchange(std::vector<WorkerNode> workers,
                                         std::vector<std::unique_ptr<Node>> servers) {
    return std::make_unique<SocketExchange>(std::move(workers), std::move(servers));
}

}  // namespace mercury::replay
