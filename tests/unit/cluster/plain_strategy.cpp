// SPDX-License-Identifier: MIT
#include "plain_strategy.hpp"

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "replay/network.hpp"

namespace mercury::replay::test {
namespace {

/// The part of a layer that one of the servers has.
std::uint64_t part(const Profile& profile, std::size_t layer, std::size_t server,
                   std::size_t servers) {
    const std::uint64_t bytes = profile.layers[layer].bytes;
    return bytes / servers + (server < bytes % servers ? 1 : 0);
}

bool send_all(const Fd& socket, std::uint64_t bytes) {
    static const std::vector<char> zeros(1 << 18);
    while (bytes > 0) {
        const ssize_t sent = send(socket.get(), zeros.data(),
                                  std::min<std::uint64_t>(bytes, zeros.size()), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes -= static_cast<std::uint64_t>(sent);
    }
    return true;
}

bool receive_all(const Fd& socket, std::uint64_t bytes) {
    while (bytes > 0) {
        const ssize_t got = recv(socket.get(), nullptr, std::min<std::uint64_t>(bytes, 1 << 20),
                                 MSG_TRUNC | MSG_WAITALL);
        if (got <= 0)
            return false;
        bytes -= static_cast<std::uint64_t>(got);
    }
    return true;
}

/// Between one worker and one server.
struct Pair {
    Connection push;
    Connection pull;
};

class PlainWorker : public Communicator {
  public:
    PlainWorker(const Profile& profile, const std::string& fail, std::vector<Pair*> pairs)
        : profile_(profile), fail_(fail), pairs_(std::move(pairs)) {
        outstanding_.resize(profile.layers.size());
        threads_.emplace_back([this] { send_pushed(); });
        for (std::size_t server = 0; server < pairs_.size(); ++server)
            threads_.emplace_back([this, server] { receive(server); });
    }
    PlainWorker(const PlainWorker&) = delete;
    PlainWorker& operator=(const PlainWorker&) = delete;
    ~PlainWorker() override {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
            changed_.notify_all();
        }
        for (auto& thread : threads_)
            thread.join();
    }

    Result<void> push(std::size_t layer) override {
        if (fail_ == "push")
            return Error{"refuses to push"};
        if (fail_ == "crash")
            raise(SIGKILL);
        const std::lock_guard lock(mutex_);
        outstanding_[layer] += pairs_.size();
        pushed_.push_back(layer);
        changed_.notify_all();
        return {};
    }

    Result<void> wait(std::size_t layer) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return fail_ != "hang" && outstanding_[layer] == 0; });
        return {};
    }

  private:
    void send_pushed() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return closed_ || !pushed_.empty(); });
            if (closed_)
                return;
            const std::size_t layer = pushed_.front();
            pushed_.pop_front();
            lock.unlock();
            for (std::size_t server = 0; server < pairs_.size(); ++server)
                send_all(pairs_[server]->push.from, part(profile_, layer, server, pairs_.size()));
            lock.lock();
        }
    }

    /// Layers come back in the order in which all workers push them: the last one first.
    void receive(std::size_t server) {
        for (;;) {
            for (std::size_t layer = profile_.layers.size(); layer-- > 0;) {
                if (!receive_all(pairs_[server]->pull.to,
                                 part(profile_, layer, server, pairs_.size())))
                    return;
                const std::lock_guard lock(mutex_);
                --outstanding_[layer];
                changed_.notify_all();
            }
        }
    }

    const Profile& profile_;
    std::string fail_;
    std::vector<Pair*> pairs_;  // by server
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::size_t> outstanding_;  // parts that are not back, by layer
    std::deque<std::size_t> pushed_;        // layers to send
    bool closed_ = false;
    std::vector<std::thread> threads_;
};

void serve(const Profile& profile, std::size_t server, std::size_t servers,
           const std::vector<Pair*>& pairs) {
    for (;;) {
        for (std::size_t layer = profile.layers.size(); layer-- > 0;) {
            const std::uint64_t bytes = part(profile, layer, server, servers);
            for (Pair* pair : pairs) {
                if (!receive_all(pair->push.to, bytes))
                    return;
            }
            for (Pair* pair : pairs) {
                if (!send_all(pair->pull.from, bytes))
                    return;
            }
        }
    }
}

class PlainExchange : public Exchange {
  public:
    PlainExchange(const Job& job, std::string fail) : job_(job), fail_(std::move(fail)) {}
    PlainExchange(const PlainExchange&) = delete;
    PlainExchange& operator=(const PlainExchange&) = delete;
    ~PlainExchange() override {
        if (fail_ == "destroy")
            for (;;)
                pause();
        for (auto& pair : pairs_) {
            for (const Fd* socket :
                 {&pair.push.from, &pair.push.to, &pair.pull.from, &pair.pull.to})
                shutdown(socket->get(), SHUT_RDWR);
        }
        workers_.clear();
        for (auto& thread : servers_)
            thread.join();
    }

    Result<void> connect(const Network& network, Endpoint endpoint) {
        std::uint16_t port = job_.first_port;
        for (const std::size_t worker : job_.workers) {
            for (const std::size_t server : job_.servers) {
                endpoint.address.sin_port = htons(port++);
                auto push = connect_hosts(network, worker, server, endpoint);
                if (!push)
                    return push.error();
                auto pull = connect_hosts(network, server, worker, endpoint);
                if (!pull)
                    return pull.error();
                pairs_.push_back({std::move(push).value(), std::move(pull).value()});
            }
        }
        return {};
    }

    void start() {
        const std::size_t servers = job_.servers.size();
        for (std::size_t worker = 0; worker < job_.workers.size(); ++worker) {
            std::vector<Pair*> own;
            for (std::size_t server = 0; server < servers; ++server)
                own.push_back(&pairs_[worker * servers + server]);
            workers_.push_back(std::make_unique<PlainWorker>(job_.profile, fail_, own));
        }
        for (std::size_t server = 0; server < servers; ++server) {
            std::vector<Pair*> own;
            for (std::size_t worker = 0; worker < job_.workers.size(); ++worker)
                own.push_back(&pairs_[worker * servers + server]);
            servers_.emplace_back(
                [this, server, servers, own] { serve(job_.profile, server, servers, own); });
        }
    }

    Communicator& worker(std::size_t rank) override { return *workers_[rank]; }

  private:
    const Job& job_;
    std::string fail_;
    std::deque<Pair> pairs_;
    std::vector<std::unique_ptr<PlainWorker>> workers_;
    std::vector<std::thread> servers_;
};

class Plain : public Strategy {
  public:
    explicit Plain(StrategySpec spec) : spec_(std::move(spec)) {}

    Result<std::unique_ptr<Exchange>> connect(const Job& job, const Network& network) override {
        const std::string fail = parameter("fail");
        if (fail == "connect")
            return Error{"refuses to connect"};
        Endpoint endpoint;
        if (!parameter("mark").empty())
            endpoint.mark = static_cast<std::uint32_t>(std::stoul(parameter("mark")));
        if (!parameter("dscp").empty())
            endpoint.dscp = static_cast<unsigned>(std::stoul(parameter("dscp")));
        auto exchange = std::make_unique<PlainExchange>(job, fail);
        if (auto connected = exchange->connect(network, endpoint); !connected)
            return connected.error();
        exchange->start();
        return std::unique_ptr<Exchange>(std::move(exchange));
    }

  private:
    std::string parameter(const std::string& name) const {
        const auto found = spec_.parameters.find(name);
        return found == spec_.parameters.end() ? std::string() : found->second;
    }

    StrategySpec spec_;
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_plain(const StrategySpec& spec) {
    if (spec.name != "plain")
        return Error{fmt::format("strategy \"{}\" is none of plain", spec.name)};
    return std::unique_ptr<Strategy>(std::make_unique<Plain>(spec));
}

}  // namespace mercury::replay::test
