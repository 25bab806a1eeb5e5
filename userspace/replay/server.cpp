// SPDX-License-Identifier: MIT
#include "replay/server.hpp"

#include <deque>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "common/reactor.hpp"

namespace mercury::replay {

Server::Server(Ends ends, Answer answer)
    : answer_(answer),
      stop_requested_(eventfd(0, EFD_CLOEXEC)),
      outcome_(ServerLog{}),
      thread_([this, ends = std::move(ends)]() mutable { outcome_ = serve(std::move(ends)); }) {}

Server::~Server() {
    if (thread_.joinable()) {
        request_stop();
        thread_.join();
    }
}

Result<ServerLog> Server::stop() {
    request_stop();
    thread_.join();
    return std::move(outcome_);
}

void Server::request_stop() const {
    eventfd_write(stop_requested_.get(), 1);
}

Result<ServerLog> Server::serve(Ends ends) const {
    ServerLog log;
    Reactor reactor;
    std::deque<Channel> channels;  // keeps its elements where they are

    auto attached =
        reactor.watch(stop_requested_.get(), EPOLLIN, [&](std::uint32_t) -> Result<void> {
            reactor.stop();
            return {};
        });
    if (!attached)
        return attached.error();

    for (std::size_t i = 0; i < ends.push.size(); ++i) {
        Channel& push = channels.emplace_back(std::move(ends.push[i]), "the worker");
        Channel& pull = channels.emplace_back(std::move(ends.pull[i]), "the worker");
        attached =
            push.attach(reactor, [this, &log, &pull](const Arrival& arrival) -> Result<void> {
                log.pushed.push_back(arrival);
                Message back = arrival.message;
                if (answer_ == Answer::at_once)
                    back.bytes = arrival.bytes;
                else if (!arrival.complete)
                    return {};
                return pull.send(back);
            });
        if (!attached)
            return attached.error();
        attached = pull.attach(reactor, [](const Arrival&) -> Result<void> {
            return Error{"the worker sent a layer on a connection for pulls"};
        });
        if (!attached)
            return attached.error();
    }

    if (const auto done = reactor.run(); !done)
        return done.error();
    for (const Channel& channel : channels)
        log.retransmits += channel.retransmits();
    return log;
}

}  // namespace mercury::replay
