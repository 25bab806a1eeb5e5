// SPDX-License-Identifier: MIT
#include "aggregation.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include <fmt/format.h>

#include "peers.hpp"
#include "transport/sockets.hpp"
#include "transport/wire.hpp"
#include "transport/worker.hpp"

namespace mercury::bench {
namespace {

using namespace mercury::transport;

/// A server in the measured thread.
class RunningServer {
  public:
    explicit RunningServer(const JobOptions& options) {
        ServerOptions own;
        own.in_flight = options.in_flight;
        // The plain peers never ping.
        own.silence = std::chrono::hours{1};
        server_ = need(Server::create(need(Address::parse("127.0.0.1:0")).front(), std::move(own)));
        thread_ = measured_thread([this] { need(server_->run()); });
        make_room_for_measured_thread();
    }
    RunningServer(const RunningServer&) = delete;
    RunningServer& operator=(const RunningServer&) = delete;
    ~RunningServer() {
        server_->stop();
        thread_.join();
    }
    Address address() const { return server_->address(); }
    Stopwatch stopwatch() { return Stopwatch(thread_.native_handle()); }
    /// What was sent has been taken when the thread sleeps.
    void wait_until_idle() {
        for (;;) {
            const Stopwatch watch = stopwatch();
            std::this_thread::sleep_for(std::chrono::milliseconds{20});
            if (watch.read(0).cpu < 100e-6)
                return;
        }
    }

  private:
    std::unique_ptr<Server> server_;
    std::thread thread_;
};

std::uint64_t bytes_of_round(const JobOptions& options) {
    return std::uint64_t{options.workers} * options.tensors * options.tensor_bytes;
}

std::size_t rounds_of(const JobOptions& options) {
    return std::max<std::size_t>(1, options.bytes / bytes_of_round(options));
}

/// WORK(rounds) once to warm up, and then on the clock.
Figures time_rounds(const JobOptions& options, RunningServer& server,
                    const std::function<void(std::size_t rounds)>& work) {
    const std::size_t rounds = rounds_of(options);
    work(1);
    const Stopwatch watch = server.stopwatch();
    work(rounds);
    return watch.read(rounds * bytes_of_round(options));
}

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i)
        threads.emplace_back(work, i);
    for (std::thread& thread : threads)
        thread.join();
}

void repeat(std::size_t times, const std::function<void()>& work) {
    for (std::size_t i = 0; i < times; ++i)
        work();
}

void send_all_of(const Fd& socket, std::span<const std::byte> data) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours{1};
    need(send_all(socket, data, deadline));
}

void receive_all_of(const Fd& socket, std::span<std::byte> data) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours{1};
    need(receive_all(socket, data, deadline));
}

/// One worker's connections.
class PlainPeer {
  public:
    PlainPeer(const JobOptions& options, const Address& server, std::size_t rank)
        : options_(options), pushed_(options.tensors), pulled_(options.tensors) {
        control_ = connect_blocking(server);
        send_all_of(control_, encode_preamble(ConnectionKind::control));
        send_all_of(control_, encode(Hello{"bench", {}}));
        send_all_of(control_, encode(join_message(rank)));
        const Session session = read_welcome();
        for (std::uint32_t c = 0; c < options.classes; ++c) {
            push_.push_back(attach(server, ConnectionKind::push, {session, c}));
            pull_.push_back(attach(server, ConnectionKind::pull, {session, c}));
        }
    }

    /// Pushes the tensors of class C once, each as soon as its last round has come back.
    void push(std::size_t c) {
        for (std::size_t tensor = c; tensor < options_.tensors; tensor += options_.classes) {
            const std::uint64_t round = ++pushed_[tensor];
            for (std::uint64_t back = pulled_[tensor]; back + 1 < round; back = pulled_[tensor])
                pulled_[tensor].wait(back);
            send_all_of(push_[c], encode(FrameHeader{static_cast<std::uint32_t>(tensor), round, 0,
                                                     options_.tensor_bytes}));
            send_bytes(push_[c], options_.tensor_bytes);
        }
    }

    /// Takes the tensors of class C once.
    void pull(std::size_t c) {
        std::uint64_t left = 0;
        for (std::size_t tensor = c; tensor < options_.tensors; tensor += options_.classes)
            left += options_.tensor_bytes;
        while (left > 0) {
            FrameHeaderBytes bytes{};
            receive_all_of(pull_[c], bytes);
            const FrameHeader header = need(decode_frame_header(bytes));
            discard_bytes(pull_[c], header.bytes);
            left -= header.bytes;
            if (header.offset + header.bytes < options_.tensor_bytes)
                continue;
            ++pulled_.at(header.tensor);
            pulled_[header.tensor].notify_one();
        }
    }

  private:
    Join join_message(std::size_t rank) const {
        Join join;
        join.rank = static_cast<std::uint32_t>(rank);
        join.workers = static_cast<std::uint32_t>(options_.workers);
        join.servers = 1;
        join.pull_marks.resize(options_.classes);
        const std::uint64_t elements = options_.tensor_bytes / size_of(options_.type);
        for (std::size_t i = 0; i < options_.tensors; ++i) {
            join.tensors.push_back({fmt::format("tensor {}", i), options_.type, Reduction::sum,
                                    static_cast<std::uint32_t>(i % options_.classes), elements, 0,
                                    elements});
        }
        return join;
    }

    Session read_welcome() const {
        std::array<std::byte, control_prefix_size> prefix{};
        receive_all_of(control_, prefix);
        std::vector<std::byte> text(need(decode_control_length(prefix, control_bytes_max)));
        receive_all_of(control_, text);
        const Control message = need(decode_control(text));
        if (const auto* const failure = std::get_if<Failure>(&message))
            die(failure->message);
        return std::get<Welcome>(message).session;
    }

    Fd attach(const Address& server, ConnectionKind kind, const Attachment& attachment) const {
        const bool pull = kind == ConnectionKind::pull;
        Fd socket = connect_blocking(server, pull ? options_.in_flight / options_.classes : 0);
        send_all_of(socket, encode_preamble(kind));
        send_all_of(socket, encode(attachment));
        return socket;
    }

    const JobOptions& options_;
    Fd control_;
    std::vector<Fd> push_;  // by class
    std::vector<Fd> pull_;
    std::vector<std::uint64_t> pushed_;  // rounds, by tensor
    std::vector<std::atomic<std::uint64_t>> pulled_;
};

class Peers {
  public:
    Peers(const JobOptions& options, const Address& server) : options_(options) {
        for (std::size_t rank = 0; rank < options.workers; ++rank)
            peers_.push_back(std::make_unique<PlainPeer>(options, server, rank));
    }
    /// WORK(peer, class) for all of them, at the same time.
    void all(const std::function<void(PlainPeer&, std::size_t)>& work) {
        in_parallel(options_.workers * options_.classes, [&](std::size_t i) {
            work(*peers_[i / options_.classes], i % options_.classes);
        });
    }

  private:
    const JobOptions& options_;
    std::vector<std::unique_ptr<PlainPeer>> peers_;
};

/// Pushes every tensor ROUNDS times, the next time as soon as it is back.
void train(Worker& worker, std::vector<std::vector<std::byte>>& buffers, std::size_t rounds) {
    std::vector<Worker::Ticket> tickets(buffers.size());
    for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            if (round > 0)
                need(worker.wait(tickets[i]));
            tickets[i] = need(worker.push_pull(i, buffers[i]));
        }
    }
    for (const Worker::Ticket& ticket : tickets)
        need(worker.wait(ticket));
}

}  // namespace

Figures serve_plain_peers(const JobOptions& options) {
    RunningServer server(options);
    Peers peers(options, server.address());
    return time_rounds(options, server, [&](std::size_t rounds) {
        peers.all([rounds](PlainPeer& peer, std::size_t c) {
            std::thread pulls([&] { repeat(rounds, [&] { peer.pull(c); }); });
            repeat(rounds, [&] { peer.push(c); });
            pulls.join();
        });
    });
}

Phases serve_in_phases(const JobOptions& options) {
    RunningServer server(options);
    Peers peers(options, server.address());
    const auto push = [&] {
        peers.all([](PlainPeer& peer, std::size_t c) { peer.push(c); });
        server.wait_until_idle();
    };
    const auto pull = [&] { peers.all([](PlainPeer& peer, std::size_t c) { peer.pull(c); }); };
    push();
    pull();
    Phases phases;
    repeat(rounds_of(options), [&] {
        const Stopwatch pushes = server.stopwatch();
        push();
        phases.push += pushes.read(bytes_of_round(options));
        const Stopwatch pulls = server.stopwatch();
        pull();
        phases.pull += pulls.read(bytes_of_round(options));
    });
    return phases;
}

Figures serve_workers(const JobOptions& options) {
    RunningServer server(options);
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < options.tensors; ++i) {
        tensors.push_back({fmt::format("tensor {}", i), options.type,
                           options.tensor_bytes / size_of(options.type),
                           static_cast<unsigned>(i % options.classes), Reduction::sum});
    }
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::vector<std::vector<std::byte>>> buffers(options.workers);
    for (std::size_t rank = 0; rank < options.workers; ++rank) {
        WorkerOptions own;
        own.job = "bench";
        own.rank = static_cast<unsigned>(rank);
        own.workers = static_cast<unsigned>(options.workers);
        own.servers = {server.address().to_string()};
        own.in_flight = options.in_flight;
        workers.push_back(need(Worker::join(own, tensors)));
        buffers[rank].assign(options.tensors, touched(options.tensor_bytes));
    }
    return time_rounds(options, server, [&](std::size_t rounds) {
        in_parallel(options.workers,
                    [&](std::size_t rank) { train(*workers[rank], buffers[rank], rounds); });
    });
}

}  // namespace mercury::bench
