// SPDX-License-Identifier: MIT
#include "world.hpp"

#include <catch2/catch.hpp>

namespace mercury::transport {

ServerThread::ServerThread(ServerOptions options) {
    auto created =
        Server::create(Address::parse("127.0.0.1:0").value().front(), std::move(options));
    if (!created)
        throw std::runtime_error(created.error().message);
    server_ = std::move(created).value();
    thread_ = std::thread([this] {
        if (const auto done = server_->run(); !done)
            std::terminate();
    });
}

ServerThread::~ServerThread() {
    stop();
}

void ServerThread::stop() {
    server_->stop();
    if (thread_.joinable())
        thread_.join();
}

World::World(std::size_t count, ServerOptions options) {
    for (std::size_t i = 0; i < count; ++i)
        servers.push_back(std::make_unique<ServerThread>(options));
}

WorkerOptions World::options(unsigned rank, unsigned workers) const {
    WorkerOptions options;
    options.job = "test";
    options.rank = rank;
    options.workers = workers;
    for (const auto& server : servers)
        options.servers.push_back(server->address());
    return options;
}

std::vector<std::unique_ptr<Worker>> World::join(unsigned workers,
                                                 const std::vector<Tensor>& tensors,
                                                 SumOrder order) const {
    std::vector<std::unique_ptr<Worker>> joined;
    for (unsigned rank = 0; rank < workers; ++rank) {
        auto own = options(rank, workers);
        own.order = order;
        auto worker = Worker::join(own, tensors);
        if (!worker)
            throw std::runtime_error(worker.error().message);
        joined.push_back(std::move(worker).value());
    }
    return joined;
}

}  // namespace mercury::transport
