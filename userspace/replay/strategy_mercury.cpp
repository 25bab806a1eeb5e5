// SPDX-License-Identifier: MIT
#include "replay/strategy_mercury.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/fd.hpp"
#include "layers/classes.hpp"
#include "replay/strategy_parameters.hpp"
#include "transport/in_flight.hpp"
#include "transport/server.hpp"
#include "transport/worker.hpp"

namespace mercury::replay {
namespace {

/// What the strategies of this file differ in, and what an experiment may set.
struct MercuryOptions {
    std::size_t classes = classes_default;
    bool whole_ranges = false;
    bool mark = true;
    std::optional<std::string> hints;  // mercuryd's socket: it marks, and chooses the job's number
    bool dscp = true;
    std::string order = "replies-first";
    std::uint64_t in_flight = 0;  // towards one host
};

constexpr std::array<std::string_view, 3> orders{"replies-first", "by-class", "interleaved"};

/// The bands of pushes and pulls. Replies first: what a server has summed leaves before what a
/// worker on the same host still has to push, of whatever class.
transport::Marks marks_of(const MercuryOptions& options, unsigned job, std::size_t classes) {
    transport::Marks marks = transport::default_marks(job, classes);
    for (std::size_t i = 0; i < classes; ++i) {
        const auto band = static_cast<std::uint32_t>(i);
        if (options.order == "by-class") {
            marks.push[i] = marks.pull[i];
        } else if (options.order == "interleaved") {
            marks.push[i] = marks.pull[0] + 2 * band + 1;
            marks.pull[i] = marks.pull[0] + 2 * band;
        }
    }
    return marks;
}

/// Memory for gradients whose values nobody looks at: as long as the longest of them, made of few
/// pages over and over. Zeros, and their sums, too.
class Zeros {
  public:
    static Result<Zeros> create(std::size_t bytes);
    Zeros(Zeros&& other) noexcept
        : bytes_(std::exchange(other.bytes_, 0)), memory_(std::exchange(other.memory_, nullptr)) {}
    Zeros& operator=(Zeros&&) = delete;
    ~Zeros() {
        if (memory_ != nullptr)
            munmap(memory_, bytes_);
    }

    std::span<std::byte> first(std::size_t bytes) const {
        return {static_cast<std::byte*>(memory_), bytes};
    }

  private:
    Zeros(std::size_t bytes, void* memory) : bytes_(bytes), memory_(memory) {}

    std::size_t bytes_;
    void* memory_;
};

Result<Zeros> Zeros::create(std::size_t bytes) {
    constexpr std::size_t piece = std::size_t{2} << 20;
    const std::size_t size = (bytes + piece - 1) / piece * piece;
    const Fd file(memfd_create("zeros", MFD_CLOEXEC));
    if (!file || ftruncate(file.get(), piece) != 0)
        return system_error("memfd_create");
    void* const memory =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return system_error("mmap");
    Zeros zeros(size, memory);
    for (std::size_t at = 0; at < size; at += piece) {
        if (mmap(static_cast<std::byte*>(memory) + at, piece, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED)
            return system_error("mmap");
    }
    return zeros;
}

class MercuryWorker : public Communicator {
  public:
    MercuryWorker(std::unique_ptr<transport::Worker> worker, const Profile& profile,
                  const Zeros& zeros)
        : worker_(std::move(worker)),
          profile_(profile),
          zeros_(zeros),
          tickets_(profile.layers.size()) {}

    Result<void> push(std::size_t layer) override {
        const auto ticket =
            worker_->push_pull(layer, zeros_.first(4 * elements_of(profile_.layers[layer])));
        if (!ticket)
            return ticket.error();
        tickets_[layer] = ticket.value();
        return {};
    }

    Result<void> wait(std::size_t layer) override {
        return tickets_[layer].round == 0 ? Result<void>{} : worker_->wait(tickets_[layer]);
    }

    static std::size_t elements_of(const Layer& layer) { return (layer.bytes + 3) / 4; }

  private:
    std::unique_ptr<transport::Worker> worker_;
    const Profile& profile_;
    const Zeros& zeros_;
    std::vector<transport::Worker::Ticket> tickets_;  // round 0: never pushed
};

class ServerThread {
  public:
    explicit ServerThread(std::unique_ptr<transport::Server> server)
        : server_(std::move(server)), thread_([this] { static_cast<void>(server_->run()); }) {}
    ServerThread(const ServerThread&) = delete;
    ServerThread& operator=(const ServerThread&) = delete;
    ~ServerThread() {
        server_->stop();
        thread_.join();
    }

    std::string address() const { return server_->address().to_string(); }

  private:
    std::unique_ptr<transport::Server> server_;
    std::thread thread_;
};

class MercuryExchange : public Exchange {
  public:
    MercuryExchange(const Job& job, const MercuryOptions& options, Zeros zeros)
        : job_(job), options_(options), zeros_(std::move(zeros)) {}

    Result<void> start_servers(const Network& network);
    Result<void> join_workers(const Network& network);

    Communicator& worker(std::size_t rank) override { return *workers_.at(rank); }

  private:
    /// Bytes that may be underway to one of the roles of a host that has ROLES.
    std::size_t in_flight(const std::vector<std::size_t>& others, std::size_t host) const;

    const Job& job_;
    MercuryOptions options_;
    Zeros zeros_;
    std::vector<std::unique_ptr<ServerThread>> servers_;
    std::vector<std::unique_ptr<MercuryWorker>> workers_;  // leave before the servers stop
};

std::size_t MercuryExchange::in_flight(const std::vector<std::size_t>& others,
                                       std::size_t host) const {
    const bool has_both_roles = std::find(others.begin(), others.end(), host) != others.end();
    return options_.in_flight / (has_both_roles ? 2 : 1);
}

Result<void> MercuryExchange::start_servers(const Network& network) {
    for (std::size_t i = 0; i < job_.servers.size(); ++i) {
        const std::size_t host = job_.servers[i];
        const in_addr ip = network.address(host);
        std::array<char, INET_ADDRSTRLEN> text{};
        inet_ntop(AF_INET, &ip, text.data(), text.size());
        const auto address =
            transport::Address::parse(fmt::format("{}:{}", text.data(), job_.first_port + i));
        if (!address)
            return address.error();
        transport::ServerOptions options;
        options.whole_ranges = options_.whole_ranges;
        options.hints = options_.hints.value_or("");
        options.in_flight = in_flight(job_.workers, host);
        auto started = network.host(host).run<std::unique_ptr<ServerThread>>(
            [&]() -> Result<std::unique_ptr<ServerThread>> {
                auto server =
                    transport::Server::create(address.value().front(), std::move(options));
                if (!server)
                    return server.error();
                return std::make_unique<ServerThread>(std::move(server).value());
            });
        if (!started)
            return started.error();
        servers_.push_back(std::move(started).value());
    }
    return {};
}

Result<void> MercuryExchange::join_workers(const Network& network) {
    const auto classes = group_layers(job_.profile, options_.classes);
    if (!classes)
        return classes.error();
    std::vector<transport::Tensor> tensors;
    for (std::size_t c = 0; c < classes.value().size(); ++c) {
        for (std::size_t i = classes.value()[c].first; i <= classes.value()[c].last; ++i)
            tensors.push_back({fmt::format("{} {}", i, job_.profile.layers[i].name),
                               transport::ElementType::f32,
                               MercuryWorker::elements_of(job_.profile.layers[i]),
                               static_cast<unsigned>(c), transport::Reduction::sum});
    }
    const auto marks = marks_of(options_, job_.number, classes.value().size());
    for (std::size_t rank = 0; rank < job_.workers.size(); ++rank) {
        const std::size_t host = job_.workers[rank];
        transport::WorkerOptions options;
        options.job = job_.name;
        options.rank = static_cast<unsigned>(rank);
        options.workers = static_cast<unsigned>(job_.workers.size());
        for (const auto& server : servers_)
            options.servers.push_back(server->address());
        options.hints = options_.hints;
        if (options_.mark && !options_.hints) {
            options.push_marks = marks.push;
            options.pull_marks = marks.pull;
        }
        options.dscp = options_.dscp;
        options.in_flight = in_flight(job_.servers, host);
        auto joined = network.host(host).run<std::unique_ptr<transport::Worker>>(
            [&] { return transport::Worker::join(options, tensors); });
        if (!joined)
            return joined.error();
        if (const auto marking = joined.value()->marking();
            options_.hints && marking.by != transport::MarkedBy::daemon)
            return Error{fmt::format("the connections are not marked: {}", marking.why)};
        workers_.push_back(
            std::make_unique<MercuryWorker>(std::move(joined).value(), job_.profile, zeros_));
    }
    return {};
}

class MercuryStrategy : public Strategy {
  public:
    explicit MercuryStrategy(MercuryOptions options) : options_(std::move(options)) {}

    Result<std::unique_ptr<Exchange>> connect(const Job& job, const Network& network) override {
        std::size_t longest = 0;
        for (const Layer& layer : job.profile.layers)
            longest = std::max(longest, 4 * MercuryWorker::elements_of(layer));
        auto zeros = Zeros::create(longest);
        if (!zeros)
            return zeros.error();
        auto exchange = std::make_unique<MercuryExchange>(job, options_, std::move(zeros).value());
        if (auto started = exchange->start_servers(network); !started)
            return started.error();
        if (auto joined = exchange->join_workers(network); !joined)
            return joined.error();
        return std::unique_ptr<Exchange>(std::move(exchange));
    }

  private:
    MercuryOptions options_;
};

Result<std::unique_ptr<Strategy>> make(const StrategySpec& spec, MercuryOptions options) {
    ParameterReader reader(spec);
    if (options.classes > 1) {
        options.classes = reader.count("classes", options.classes, 1, 16);
        options.order = reader.choice("order", options.order, orders);
    }
    options.mark = reader.yes_no("mark", options.mark);
    options.hints = reader.text("hints");
    options.dscp = reader.yes_no("dscp", options.dscp);
    options.in_flight =
        reader.bytes("in_flight", transport::in_flight_default, 0, std::uint64_t{1} << 30);
    if (auto right = reader.check(); !right)
        return right.error();
    if (options.hints && (!options.mark || options.order != MercuryOptions{}.order)) {
        return Error{fmt::format("strategy {}: with hints, mark is yes and order is {}", spec.name,
                                 MercuryOptions{}.order)};
    }
    return std::unique_ptr<Strategy>(std::make_unique<MercuryStrategy>(std::move(options)));
}

}  // namespace

Result<std::unique_ptr<Strategy>> make_mercury(const StrategySpec& spec) {
    return make(spec, {});
}

Result<std::unique_ptr<Strategy>> make_mercury_no_priority(const StrategySpec& spec) {
    MercuryOptions options;
    options.classes = 1;
    return make(spec, options);
}

Result<std::unique_ptr<Strategy>> make_mercury_no_aggregation(const StrategySpec& spec) {
    MercuryOptions options;
    options.whole_ranges = true;
    return make(spec, options);
}

}  // namespace mercury::replay
