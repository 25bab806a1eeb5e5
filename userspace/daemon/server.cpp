// SPDX-License-Identifier: MIT
#include "daemon/server.hpp"

#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/logging.hpp"

namespace mercury::daemon {
namespace {

using namespace std::chrono_literals;
using hints::Answer;
using hints::Code;
using hints::Failure;
using hints::Transfer;

// In one turn, before others have theirs.
constexpr int accepted_in_turn = 16;
constexpr int messages_in_turn = 8;

// What a connection costs of a user's messages, in bytes.
constexpr std::size_t connection_bytes = 4096;

// A client that does not take an answer for so long never will.
constexpr auto answer_time = 10s;

std::optional<std::uint32_t> uid_of(const Fd& socket) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return std::nullopt;
    return peer.uid;
}

/// For as long as it takes, in a thread that may wait for it.
void close_in(Lane& lane, Fd fd) {
    lane.post([held = std::make_shared<Fd>(std::move(fd))] { *held = Fd(); });
}

}  // namespace

Server::Server(Fd listener, Reactor& reactor, Registry& registry, const Limits& limits,
               const DscpOfClass& dscp, Session::StatusSource status)
    : listener_(std::move(listener)),
      reactor_(reactor),
      registry_(registry),
      limits_(limits),
      dscp_(dscp),
      status_(std::move(status)) {}

Server::~Server() {
    while (!clients_.empty())
        hang_up(clients_.begin()->second);
    inbox_->detach(reactor_);
    reactor_.unwatch(listener_.get());
}

Result<void> Server::start() {
    if (auto attached = inbox_->attach(reactor_); !attached)
        return attached;
    if (auto attached = silence_.attach(reactor_,
                                        [this]() -> Result<void> {
                                            end_silence();
                                            return {};
                                        });
        !attached)
        return attached;
    if (auto attached = second_.attach(reactor_, [this] { return housekeep(); }); !attached)
        return attached;
    return listen();
}

Result<void> Server::listen() {
    listening_ = true;
    return reactor_.watch(listener_.get(), EPOLLIN,
                          [this](std::uint32_t /*events*/) -> Result<void> {
                              accept_clients();
                              return arm_housekeeping();
                          });
}

// Connections ----------------------------------------------------------------------------------

void Server::accept_clients() {
    for (int i = 0; i < accepted_in_turn; ++i) {
        Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket) {
            welcome(std::move(socket));
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN) {  // no descriptors, no memory: the queue can wait, not we
            spdlog::warn("no new clients for a second: {}", system_error("accept").message);
            reactor_.unwatch(listener_.get());
            listening_ = false;
        }
        return;
    }
}

std::shared_ptr<User> Server::user_of(std::uint32_t uid) {
    auto& user = users_[uid];
    if (!user)
        user = std::make_shared<User>(uid, limits_);
    return user;
}

void Server::welcome(Fd socket) {
    const auto uid = uid_of(socket);
    if (!uid)
        return;
    ++counters_.connections;
    const auto user = user_of(*uid);
    user->spend(connection_bytes);
    if (user->clients >= limits_.clients) {
        const Failure refusal{
            Code::Limit,
            fmt::format("user {} has {} clients, as many as are allowed", *uid, user->clients),
            "",
            {}};
        count(refusal);
        hints::send(socket, encode(Answer(refusal)));
        return close_in(user->lane, std::move(socket));
    }
    const std::uint64_t number = next_number_++;
    auto session = std::make_unique<Session>(*user, registry_, dscp_, status_);
    const auto watched = reactor_.watch(socket.get(), EPOLLIN | EPOLLONESHOT,
                                        [this, number](std::uint32_t /*events*/) -> Result<void> {
                                            serve(number);
                                            return {};
                                        });
    if (!watched)
        return close_in(user->lane, std::move(socket));
    ++user->clients;
    clients_.emplace(number,
                     Client{number, std::move(socket), user, std::move(session), "", {}, false});
}

void Server::hang_up(Client& client) {
    const auto node = clients_.extract(client.number);
    reactor_.unwatch(client.socket.get());
    --client.user->clients;
    // It may have been sent descriptors that nobody has taken, which are closed with it.
    close_in(client.user->lane, std::move(client.socket));
}

// Messages -------------------------------------------------------------------------------------

void Server::serve(std::uint64_t number) {
    const auto found = clients_.find(number);
    if (found == clients_.end())
        return;
    Client& client = found->second;
    Next next = client.unsent.empty() ? Next::Message : deliver(client);
    for (int i = 0; i < messages_in_turn && next == Next::Message; ++i)
        next = hear(client);
    go_on(client, next);
}

void Server::go_on(Client& client, Next next) {
    if (next == Next::HangUp)
        return hang_up(client);
    if (next == Next::Rest)
        return;
    const std::uint32_t events = next == Next::Room ? EPOLLOUT : EPOLLIN;
    if (!reactor_.change(client.socket.get(), events | EPOLLONESHOT))
        hang_up(client);
}

Server::Next Server::hear(Client& client) {
    const auto now = Clock::now();
    const auto may_speak_at = client.user->may_speak_at(now);
    if (may_speak_at > now)
        return silence(client, may_speak_at);
    if (!client.user->has_room())
        return silence(client, std::nullopt);
    switch (receive(client.socket, packet_)) {
        case Transfer::Done:
            break;
        case Transfer::WouldBlock:
            return Next::Input;
        case Transfer::Closed:
        case Transfer::Refused:
            return Next::HangUp;
    }
    client.user->spend(packet_.bytes().size());
    return understand(client);
}

Server::Next Server::understand(Client& client) {
    auto descriptors = std::exchange(packet_.descriptors(), {});
    const auto refuse = [&](Failure failure) {
        return discard(client, std::move(descriptors), std::move(failure));
    };
    if (packet_.truncated()) {
        return refuse({Code::Malformed,
                       fmt::format("a message has at most {} bytes", hints::message_bytes_max),
                       "",
                       {}});
    }
    if (packet_.descriptors_lost())
        return refuse({Code::Descriptor, "the daemon has no room for the descriptor", "", {}});
    auto decoded = hints::decode_request(packet_.bytes());
    if (auto* const failure = std::get_if<Failure>(&decoded))
        return refuse(std::move(*failure));

    const auto& request = std::get<hints::Request>(decoded);
    ++counters_.requests.at(request.index());
    client.leaving = std::holds_alternative<hints::Bye>(request);
    auto reply = client.session->handle(request, descriptors.size(), Clock::now());
    if (const auto* const marking = std::get_if<Marking>(&reply))
        return mark(client, std::move(descriptors.front()), *marking);
    return discard(client, std::move(descriptors), std::get<Answer>(std::move(reply)));
}

void Server::count(const Failure& failure) {
    ++counters_.errors;
    ++counters_.refusals.at(static_cast<std::size_t>(failure.code));
}

Server::Next Server::answer(Client& client, const Answer& answer) {
    ++counters_.messages;
    if (const auto* const failure = std::get_if<Failure>(&answer)) {
        count(*failure);
        client.leaving = false;
        spdlog::debug("user {}: {}: {}", client.user->uid, to_string(failure->code),
                      printable(failure->message));
    }
    client.unsent = encode(answer);
    client.give_up = Clock::now() + answer_time;
    return deliver(client);
}

Server::Next Server::deliver(Client& client) {
    switch (hints::send(client.socket, client.unsent)) {
        case Transfer::Done:
            client.unsent.clear();
            return client.leaving ? Next::HangUp : Next::Message;
        case Transfer::WouldBlock:
            return Next::Room;
        case Transfer::Closed:
        case Transfer::Refused:
            break;
    }
    return Next::HangUp;
}

// Descriptors ----------------------------------------------------------------------------------

Server::Next Server::mark(Client& client, Fd descriptor, const Marking& marking) {
    ++client.user->descriptors;
    client.user->lane.post([this, marking, inbox = inbox_, number = client.number,
                            user = client.user,
                            held = std::make_shared<Fd>(std::move(descriptor))] {
        const auto outcome = mark_socket(held->get(), marking);
        *held = Fd();
        inbox->post([this, number, user, outcome] {
            if (std::holds_alternative<Marked>(outcome))
                ++counters_.sockets;
            returned(number, user, 1, [&](Session& session) { return session.marked(outcome); });
        });
    });
    return Next::Rest;
}

/// Answers once the descriptors, if there are any, are closed.
Server::Next Server::discard(Client& client, std::vector<Fd> descriptors, Answer failure) {
    if (descriptors.empty())
        return answer(client, failure);
    client.user->descriptors += descriptors.size();
    client.user->lane.post([this, inbox = inbox_, number = client.number, user = client.user,
                            held = std::make_shared<std::vector<Fd>>(std::move(descriptors)),
                            failure = std::move(failure)] {
        const std::size_t count = held->size();
        held->clear();
        inbox->post([this, number, user, count, failure] {
            returned(number, user, count, [&](Session& /*session*/) { return failure; });
        });
    });
    return Next::Rest;
}

void Server::returned(std::uint64_t number, const std::shared_ptr<User>& user,
                      std::size_t descriptors, const std::function<Answer(Session&)>& outcome) {
    const bool had_room = user->has_room();
    user->descriptors -= descriptors;
    if (const auto found = clients_.find(number); found != clients_.end()) {
        Client& client = found->second;
        go_on(client, answer(client, outcome(*client.session)));
    }
    if (!had_room && user->has_room())
        end_silence();
}

// Time -----------------------------------------------------------------------------------------

/// Until TIME, or, without one, until the user has room.
Server::Next Server::silence(Client& client, std::optional<Clock::time_point> time) {
    silenced_.push_back(client.number);
    if (time && (!silence_ends_ || *time < *silence_ends_)) {
        silence_ends_ = time;
        if (!silence_.arm(*time))
            return Next::HangUp;
    }
    return Next::Rest;
}

/// Whoever still may not speak is silenced again.
void Server::end_silence() {
    silence_ends_.reset();
    for (const std::uint64_t number : std::exchange(silenced_, {}))
        serve(number);
}

Result<void> Server::arm_housekeeping() {
    const bool needed = !clients_.empty() || !users_.empty() || !listening_;
    if (!needed || std::exchange(housekeeping_, true))
        return {};
    return second_.arm(Clock::now() + 1s);
}

Result<void> Server::housekeep() {
    housekeeping_ = false;
    const auto now = Clock::now();
    registry_.tick(now);
    std::vector<std::uint64_t> deaf;
    for (const auto& [number, client] : clients_) {
        if (!client.unsent.empty() && now > client.give_up)
            deaf.push_back(number);
    }
    for (const std::uint64_t number : deaf) {
        Client& client = clients_.at(number);
        spdlog::info("user {}: a client does not take its answers: it is hung up on",
                     client.user->uid);
        hang_up(client);
    }
    std::erase_if(users_, [now](const auto& entry) { return entry.second->is_idle(now); });
    if (!listening_) {
        if (auto watched = listen(); !watched)
            return watched;
    }
    return arm_housekeeping();
}

}  // namespace mercury::daemon
