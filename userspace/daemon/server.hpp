// SPDX-License-Identifier: MIT
//
// The clients: who connects, what they send and when they are heard. One client has one message
// underway at a time, so all that is kept for it is one answer that it has not taken yet.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "daemon/lane.hpp"
#include "daemon/registry.hpp"
#include "daemon/session.hpp"
#include "daemon/users.hpp"
#include "hints/message_socket.hpp"

namespace mercury::daemon {

/// Since the daemon has started.
struct Counters {
    std::uint64_t messages = 0;                                         // answered, errors too
    std::uint64_t errors = 0;                                           // and refused connections
    std::uint64_t sockets = 0;                                          // marked
    std::uint64_t connections = 0;                                      // accepted
    std::array<std::uint64_t, hints::request_types.size()> requests{};  // that were understood
    std::array<std::uint64_t, hints::code_names.size()> refusals{};     // the errors, by code
};

class Server {
  public:
    /// LISTENER is a UNIX seqpacket socket. All others outlive the server; LIMITS and DSCP may
    /// change.
    Server(Fd listener, Reactor& reactor, Registry& registry, const Limits& limits,
           const DscpOfClass& dscp, Session::StatusSource status);
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server();

    Result<void> start();

    const Counters& counters() const { return counters_; }
    std::size_t clients() const { return clients_.size(); }

  private:
    struct Client {
        std::uint64_t number = 0;
        Fd socket;
        std::shared_ptr<User> user;
        std::unique_ptr<Session> session;
        std::string unsent;           // an answer that it had no room for
        Clock::time_point give_up{};  // when it is unsent for too long
        bool leaving = false;         // after the answer
    };
    /// What a client is waited for, or by.
    enum class Next : std::uint8_t {
        Message,  // it may have sent another
        Input,    // that it sends one
        Room,     // that it takes its answer
        Rest,     // somebody else will go on
        HangUp,
    };

    Result<void> listen();
    void accept_clients();
    void welcome(Fd socket);
    std::shared_ptr<User> user_of(std::uint32_t uid);
    void serve(std::uint64_t number);
    Next hear(Client& client);
    Next understand(Client& client);
    void count(const hints::Failure& failure);
    Next answer(Client& client, const hints::Answer& answer);
    Next deliver(Client& client);
    Next mark(Client& client, Fd descriptor, const Marking& marking);
    Next discard(Client& client, std::vector<Fd> descriptors, hints::Answer failure);
    void returned(std::uint64_t number, const std::shared_ptr<User>& user, std::size_t descriptors,
                  const std::function<hints::Answer(Session&)>& outcome);
    Next silence(Client& client, std::optional<Clock::time_point> time);
    void end_silence();
    void go_on(Client& client, Next next);
    void hang_up(Client& client);
    Result<void> housekeep();
    Result<void> arm_housekeeping();

    Fd listener_;
    Reactor& reactor_;
    Registry& registry_;
    const Limits& limits_;
    const DscpOfClass& dscp_;
    Session::StatusSource status_;

    std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
    hints::Packet packet_;
    std::unordered_map<std::uint32_t, std::shared_ptr<User>> users_;
    std::unordered_map<std::uint64_t, Client> clients_;
    std::uint64_t next_number_ = 0;
    std::vector<std::uint64_t> silenced_;  // clients of users that may not speak now
    Timer silence_;
    std::optional<Clock::time_point> silence_ends_;
    Timer second_;
    bool housekeeping_ = false;
    bool listening_ = false;
    Counters counters_;
};

}  // namespace mercury::daemon
