// SPDX-License-Identifier: MIT
#include "transport/server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "common/fd.hpp"
#include "common/logging.hpp"
#include "common/reactor.hpp"
#include "transport/control_channel.hpp"
#include "transport/job.hpp"
#include "transport/sockets.hpp"
#include "transport/wire.hpp"

namespace mercury::transport {
namespace {

constexpr int backlog = 1024;
constexpr std::size_t name_bytes_max = 256;

/// Then others have their turn.
constexpr int accepts_at_once = 64;

/// In a time that does not depend on where they differ.
bool equal_in_constant_time(const std::string& given, const std::string& wanted) {
    unsigned char difference = given.size() == wanted.size() ? 0 : 1;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const char other = wanted.empty() ? '\0' : wanted[i % wanted.size()];
        difference |= static_cast<unsigned char>(given[i] ^ other);
    }
    return difference == 0;
}

Result<Session> random_session() {
    Session session{};
    if (getrandom(session.data(), session.size(), 0) != static_cast<ssize_t>(session.size()))
        return system_error("getrandom");
    return session;
}

Result<void> check_limits(const Join& join, const ServerLimits& limits) {
    const auto within = [](const char* what, std::uint64_t value, std::uint64_t least,
                           std::uint64_t most) -> Result<void> {
        if (value >= least && value <= most)
            return {};
        return Error{
            fmt::format("{} must be {} to {} at this server, not {}", what, least, most, value)};
    };
    if (auto ok =
            within("workers", join.workers, 1, std::min(limits.workers, Accumulator::workers_max));
        !ok)
        return ok;
    if (auto ok = within("the rank", join.rank, 0, join.workers - 1); !ok)
        return ok;
    if (auto ok = within("classes", join.pull_marks.size(), 1, limits.classes); !ok)
        return ok;
    if (auto ok = within("tensors", join.tensors.size(), 0, limits.tensors); !ok)
        return ok;
    for (const TensorRange& range : join.tensors) {
        if (range.key.size() > name_bytes_max) {
            return Error{fmt::format("a tensor's key has {} bytes; {} are allowed",
                                     range.key.size(), name_bytes_max)};
        }
        if (range.priority_class >= join.pull_marks.size()) {
            return Error{fmt::format("the class of \"{}\" must be below {}, not {}", range.key,
                                     join.pull_marks.size(), range.priority_class)};
        }
        if (range.elements == 0 || range.total < range.elements ||
            range.offset > range.total - range.elements) {
            return Error{fmt::format("\"{}\" has no range of {} elements from {} in {}", range.key,
                                     range.elements, range.offset, range.total)};
        }
    }
    return {};
}

}  // namespace

class Server::Impl {
  public:
    Impl(Fd listener, ServerOptions options)
        : listener_(std::move(listener)),
          options_(std::move(options)),
          wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        // Strangers choose their own names.
        options_.log = [log = std::move(options_.log)](const std::string& text) {
            log(printable(text));
        };
    }

    Result<void> start();
    Result<void> run();
    void stop() const { eventfd_write(wake_.get(), stop_request); }
    const Fd& listener() const { return listener_; }

  private:
    static constexpr eventfd_t stop_request = eventfd_t{1} << 32;
    static constexpr eventfd_t clean_up_request = 1;

    /// A connection that has not said yet what it is.
    struct Greeting {
        Fd socket;
        std::string peer;
        Clock::time_point since = Clock::now();
        std::array<std::byte, preamble_size + attachment_size> bytes{};
        std::size_t size = 0;
    };
    /// A control connection without a job: not yet, or no longer.
    struct Loose {
        std::unique_ptr<ControlChannel> channel;
        std::string peer;
        std::optional<Hello> hello;
        Clock::time_point since = Clock::now();
    };

    Result<void> accept_some();
    bool drop_oldest_stranger();
    Result<void> greeted(int fd);
    Result<void> greet(Greeting& greeting);
    Result<ControlChannel*> begin_control(Greeting& greeting);
    void lost(ControlChannel* channel, const Error& why);
    Result<void> begin_data(Greeting& greeting, ConnectionKind kind);
    Result<void> received(ControlChannel* channel, const Control& message);
    Result<void> join(Loose& loose, const Join& join);
    Result<Job*> job_for(const std::string& name, const Join& join);
    void refuse(ControlChannel* channel, const Error& why);
    void let_go(std::unique_ptr<ControlChannel> channel, std::string peer);
    void forget(const ControlChannel* channel);
    void end(const std::string& name, const std::optional<Error>& why);
    Result<void> woken();
    Result<void> tick();
    std::chrono::milliseconds tick_interval() const;

    Fd listener_;
    ServerOptions options_;
    Reactor reactor_;
    Fd wake_;
    Timer timer_;
    bool accepting_ = true;
    std::map<int, std::unique_ptr<Greeting>> greetings_;  // by descriptor
    std::map<const ControlChannel*, Loose> loose_;
    std::map<std::string, std::unique_ptr<Job>> jobs_;

    // What may still be on the call stack, until the next wake-up.
    std::vector<std::unique_ptr<Job>> dead_jobs_;
    std::vector<std::unique_ptr<ControlChannel>> dead_channels_;
};

Result<void> Server::Impl::start() {
    if (auto done = reactor_.watch(listener_.get(), EPOLLIN,
                                   [this](std::uint32_t /*events*/) { return accept_some(); });
        !done)
        return done;
    if (auto done = reactor_.watch(wake_.get(), EPOLLIN,
                                   [this](std::uint32_t /*events*/) { return woken(); });
        !done)
        return done;
    return timer_.attach(reactor_, [this] { return tick(); });
}

Result<void> Server::Impl::run() {
    if (auto armed = timer_.arm(Clock::now() + tick_interval()); !armed)
        return armed;
    auto outcome = reactor_.run();
    std::vector<Job*> jobs;
    for (const auto& [name, job] : jobs_)
        jobs.push_back(job.get());
    for (Job* const job : jobs)
        job->fail("the server was stopped");
    return outcome;
}

// The shortest of all times, in quarters.
std::chrono::milliseconds Server::Impl::tick_interval() const {
    return std::max(std::min({options_.silence, options_.join_time, options_.stall}) / 4,
                    std::chrono::milliseconds{1});
}

Result<void> Server::Impl::accept_some() {
    for (int i = 0; i < accepts_at_once; ++i) {
        Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) {
            if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
                return {};  // none left, or one that has gone already
            options_.log(system_error("cannot accept a connection").message);
            if (drop_oldest_stranger())
                continue;
            // Would be reported again at once: wait until something has been closed.
            accepting_ = false;
            return reactor_.change(listener_.get(), 0);
        }
        const auto peer = Address::of_peer(socket);
        if (!peer)
            continue;
        if (greetings_.size() + loose_.size() >= options_.limits.connections)
            drop_oldest_stranger();
        const int fd = socket.get();
        auto watched = reactor_.watch(fd, EPOLLIN,
                                      [this, fd](std::uint32_t /*events*/) { return greeted(fd); });
        if (!watched) {
            options_.log(watched.error().message);
            continue;
        }
        greetings_[fd] =
            std::make_unique<Greeting>(Greeting{std::move(socket), peer.value().to_string()});
    }
    return {};
}

/// A worker says at once what it is: those who idle must not keep it out. False: there is none.
bool Server::Impl::drop_oldest_stranger() {
    const auto since = [](const auto& entry) { return entry.second->since; };
    const auto greeting = std::ranges::min_element(greetings_, {}, since);
    const auto loose =
        std::ranges::min_element(loose_, {}, [](const auto& entry) { return entry.second.since; });
    if (loose != loose_.end() &&
        (greeting == greetings_.end() || loose->second.since < greeting->second->since)) {
        options_.log(fmt::format("dropped {} for another connection", loose->second.peer));
        loose_.erase(loose);
        return true;
    }
    if (greeting == greetings_.end())
        return false;
    options_.log(fmt::format("dropped {} for another connection", greeting->second->peer));
    reactor_.unwatch(greeting->first);
    greetings_.erase(greeting);
    return true;
}

Result<void> Server::Impl::greeted(int fd) {
    Greeting& greeting = *greetings_.at(fd);
    if (const auto outcome = greet(greeting); !outcome) {
        options_.log(fmt::format("{} {}", greeting.peer, outcome.error().message));
        reactor_.unwatch(fd);
        greetings_.erase(fd);
    }
    return {};
}

/// Error: it is to be closed.
Result<void> Server::Impl::greet(Greeting& greeting) {
    const auto read_to = [&](std::size_t end) -> Result<bool> {
        const ssize_t size = recv(greeting.socket.get(), greeting.bytes.data() + greeting.size,
                                  end - greeting.size, MSG_DONTWAIT);
        if (size == 0)
            return Error{"closed the connection before it said what it is"};
        if (size < 0)
            return errno == EAGAIN ? Result<bool>{false} : connection_error();
        greeting.size += static_cast<std::size_t>(size);
        return greeting.size == end;
    };

    if (greeting.size < preamble_size) {
        const auto complete = read_to(preamble_size);
        if (!complete)
            return complete.error();
        if (!complete.value())
            return {};
    }
    Preamble preamble{};
    std::copy_n(greeting.bytes.begin(), preamble_size, preamble.begin());
    const auto kind = decode_preamble(preamble);
    if (!kind || kind.value() == ConnectionKind::control) {
        const auto channel = begin_control(greeting);
        if (!channel)
            return channel.error();
        if (!kind)  // it may be a worker of another version, which then learns why
            lost(channel.value(), kind.error());
        return {};
    }

    const auto complete = read_to(greeting.bytes.size());
    if (!complete)
        return complete.error();
    return complete.value() ? begin_data(greeting, kind.value()) : Result<void>{};
}

Result<ControlChannel*> Server::Impl::begin_control(Greeting& greeting) {
    const int fd = greeting.socket.get();
    reactor_.unwatch(fd);
    auto channel = std::make_unique<ControlChannel>(std::move(greeting.socket), reactor_);
    ControlChannel* const key = channel.get();
    channel->set_receiver(
        [this, key](const Control& message) {
            const auto outcome = received(key, message);
            if (!outcome)
                refuse(key, outcome.error());
            return Result<void>{};
        },
        [this, key](const Error& why) { lost(key, why); });
    if (auto started = channel->start(); !started)
        return started.error();
    loose_.emplace(key, Loose{std::move(channel), std::move(greeting.peer), std::nullopt});
    greetings_.erase(fd);
    return key;
}

void Server::Impl::lost(ControlChannel* channel, const Error& why) {
    const Error full{fmt::format("{} {}", loose_.at(channel).peer, why.message)};
    if (!channel->is_lost()) {
        refuse(channel, full);
        return;
    }
    options_.log(full.message);
    forget(channel);
}

Result<void> Server::Impl::begin_data(Greeting& greeting, ConnectionKind kind) {
    AttachmentBytes bytes{};
    std::copy_n(greeting.bytes.begin() + preamble_size, bytes.size(), bytes.begin());
    const Attachment attachment = decode_attachment(bytes);
    const auto owner = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
        return entry.second->owns(attachment.session);
    });
    if (owner == jobs_.end())
        return Error{"attaches a connection to no session of this server"};

    const int fd = greeting.socket.get();
    reactor_.unwatch(fd);
    const auto attached = owner->second->attach(kind, attachment, std::move(greeting.socket));
    greetings_.erase(fd);
    if (!attached)
        owner->second->fail(attached.error().message);
    return {};
}

/// Error: the peer is told, and let go.
Result<void> Server::Impl::received(ControlChannel* channel, const Control& message) {
    Loose& loose = loose_.at(channel);
    if (const auto* const hello = std::get_if<Hello>(&message); hello != nullptr && !loose.hello) {
        if (!equal_in_constant_time(hello->token, options_.token))
            return Error{"the token is wrong"};
        if (hello->job.empty() || hello->job.size() > name_bytes_max) {
            return Error{fmt::format("the name of a job has 1 to {} bytes, not {}", name_bytes_max,
                                     hello->job.size())};
        }
        loose.hello = *hello;
        channel->set_limit(control_bytes_max);
        return {};
    }
    if (const auto* const wanted = std::get_if<Join>(&message); wanted != nullptr && loose.hello)
        return join(loose, *wanted);
    return Error{"expected a hello and then a join"};
}

Result<void> Server::Impl::join(Loose& loose, const Join& join) {
    if (auto allowed = check_limits(join, options_.limits); !allowed)
        return allowed;
    const auto session = random_session();
    if (!session)
        return session.error();
    const auto job = job_for(loose.hello->job, join);
    if (!job)
        return job.error();
    const ControlChannel* const key = loose.channel.get();
    if (auto joined = job.value()->join(join, loose.channel, loose.peer, session.value()); !joined)
        return joined;
    loose_.erase(key);
    job.value()->welcome(join.rank);
    return {};
}

Result<Job*> Server::Impl::job_for(const std::string& name, const Join& join) {
    if (const auto found = jobs_.find(name); found != jobs_.end())
        return found->second.get();
    if (jobs_.size() >= options_.limits.jobs)
        return Error{fmt::format("this server has {} jobs, and no more are allowed", jobs_.size())};
    std::uint64_t used = 0;
    for (const auto& [other, job] : jobs_)
        used += job->memory();
    const std::uint64_t needed = memory_of(join);
    if (needed > options_.limits.memory || used > options_.limits.memory - needed) {
        return Error{
            fmt::format("job \"{}\" needs {} bytes of memory; of the {} of this server, "
                        "{} are in use",
                        name, needed, options_.limits.memory, used)};
    }
    try {
        auto job = std::make_unique<Job>(
            name, join, options_, reactor_,
            [this, name](const std::optional<Error>& why) { end(name, why); });
        return (jobs_[name] = std::move(job)).get();
    } catch (const std::bad_alloc&) {
        return Error{
            fmt::format("this machine has no {} bytes of memory for job \"{}\"", needed, name)};
    }
}

void Server::Impl::refuse(ControlChannel* channel, const Error& why) {
    const auto found = loose_.find(channel);
    options_.log(fmt::format("refused {}: {}", found->second.peer, why.message));
    channel->send(Failure{why.message});
    // Sending may have lost it.
    if (auto still = loose_.extract(channel); !still.empty())
        let_go(std::move(still.mapped().channel), std::move(still.mapped().peer));
}

/// Keeps CHANNEL until the peer has closed it, so that it can read why.
void Server::Impl::let_go(std::unique_ptr<ControlChannel> channel, std::string peer) {
    ControlChannel* const key = channel.get();
    loose_.emplace(key, Loose{std::move(channel), std::move(peer), std::nullopt});
    key->set_receiver([](const Control&) { return Result<void>{}; },
                      [this, key](const Error& /*why*/) { forget(key); });
    key->finish();
    if (key->is_lost())
        forget(key);
}

void Server::Impl::forget(const ControlChannel* channel) {
    const auto found = loose_.find(channel);
    if (found == loose_.end())
        return;
    dead_channels_.push_back(std::move(found->second.channel));
    loose_.erase(found);
    eventfd_write(wake_.get(), clean_up_request);
}

void Server::Impl::end(const std::string& name, const std::optional<Error>& why) {
    options_.log(why ? why->message : fmt::format("job \"{}\" is done", name));
    auto node = jobs_.extract(name);
    for (auto& [channel, peer] : node.mapped()->take_channels())
        let_go(std::move(channel), std::move(peer));
    dead_jobs_.push_back(std::move(node.mapped()));
    eventfd_write(wake_.get(), clean_up_request);
}

Result<void> Server::Impl::woken() {
    eventfd_t requests = 0;
    eventfd_read(wake_.get(), &requests);
    dead_jobs_.clear();
    dead_channels_.clear();
    if (requests >= stop_request)
        reactor_.stop();
    return {};
}

Result<void> Server::Impl::tick() {
    const auto now = Clock::now();
    if (!std::exchange(accepting_, true)) {
        if (auto changed = reactor_.change(listener_.get(), EPOLLIN); !changed)
            return changed;
    }
    std::vector<int> late;
    for (const auto& [fd, greeting] : greetings_) {
        if (now - greeting->since > options_.silence)
            late.push_back(fd);
    }
    for (const int fd : late) {
        options_.log(fmt::format("{} did not say what it is", greetings_.at(fd)->peer));
        reactor_.unwatch(fd);
        greetings_.erase(fd);
    }
    std::vector<const ControlChannel*> silent;
    for (const auto& [channel, loose] : loose_) {
        if (now - loose.since > options_.silence)
            silent.push_back(channel);
    }
    for (const ControlChannel* const channel : silent) {
        options_.log(fmt::format("{} did not go on in time", loose_.at(channel).peer));
        forget(channel);
    }
    std::vector<Job*> jobs;  // check() may end one
    for (const auto& [name, job] : jobs_)
        jobs.push_back(job.get());
    for (Job* const job : jobs)
        job->check(now);
    return timer_.arm(now + tick_interval());
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(const Address& address, ServerOptions options) {
    auto listener = listen_at(address, backlog);
    if (!listener)
        return listener.error();
    auto impl = std::make_unique<Impl>(std::move(listener).value(), std::move(options));
    if (auto started = impl->start(); !started)
        return started.error();
    return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Address Server::address() const {
    return Address::of_socket(impl_->listener()).value();
}

Result<void> Server::run() {
    return impl_->run();
}

void Server::stop() {
    impl_->stop();
}

}  // namespace mercury::transport
