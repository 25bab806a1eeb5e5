// SPDX-License-Identifier: MIT
//
// One client's conversation: what each request may do, and what it gets as an answer. No I/O, so
// that every order of messages can be tested.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "daemon/registry.hpp"
#include "hints/protocol.hpp"
#include "marking/marking.hpp"

namespace mercury::daemon {

/// What sockets get besides mark and priority: the DSCP of each class, the last one for all behind
/// it; empty: none.
using DscpOfClass = std::vector<std::uint8_t>;

/// Of a socket in class INDEX of PLAN.
Marking marking_of_class(const std::vector<PlannedClass>& plan, std::size_t index,
                         const DscpOfClass& dscp);

class Session {
  public:
    /// What the daemon says to QueryStatus, to the user with that number.
    using StatusSource = std::function<hints::Status(std::uint32_t uid)>;
    /// An answer, or what is first to be done to the descriptor that came with the request.
    using Reply = std::variant<hints::Answer, Marking>;

    /// All of them outlive the session.
    Session(User& user, Registry& registry, const DscpOfClass& dscp, const StatusSource& status)
        : user_(user), registry_(registry), dscp_(dscp), status_(status) {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session();

    Reply handle(const hints::Request& request, std::size_t descriptors, Clock::time_point now);
    /// The answer after a Marking.
    hints::Answer marked(const std::variant<Marked, hints::Failure>& outcome);

  private:
    Reply on(const hints::Hello& hello, Clock::time_point now);
    Reply on(const hints::DeclareJob& job, Clock::time_point now);
    Reply on(const hints::Assign& assign, Clock::time_point now);
    Reply on(const hints::Step& step, Clock::time_point now);
    Reply on(const hints::QueryStatus& query, Clock::time_point now);
    Reply on(const hints::Bye& bye, Clock::time_point now);

    User& user_;
    Registry& registry_;
    const DscpOfClass& dscp_;
    const StatusSource& status_;
    bool greeted_ = false;
    Member* member_ = nullptr;
    std::size_t marking_ = 0;  // the layer that a Marking underway is for
};

}  // namespace mercury::daemon
