// SPDX-License-Identifier: MIT
//
// The jobs: who trains what, under which number, with which deadlines. No I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/pace.hpp"
#include "daemon/users.hpp"
#include "hints/protocol.hpp"
#include "layers/plan.hpp"

namespace mercury::daemon {

/// By band from 0; nothing: the job says nothing of it.
using Deadlines = std::vector<std::optional<std::chrono::nanoseconds>>;

struct Job;

/// One connection's part in a job.
struct Member {
    Job* job = nullptr;
    Profile profile;
    std::size_t max_classes = 0;
    std::vector<PlannedClass> plan;
    Pace pace;
    std::optional<std::chrono::nanoseconds> interval;  // that the plan follows
    bool stale = false;
    std::unordered_map<std::uint64_t, std::size_t> sockets;  // layer by cookie
};

/// Clients of one user that gave the same name.
struct Job {
    unsigned number = 0;
    std::string name;
    User* user = nullptr;
    std::vector<std::unique_ptr<Member>> members;
    std::uint64_t steps = 0;  // of all members, also of those that have left
    Deadlines deadlines;      // as they were last announced
    bool has_option = false;  // its members may mark sockets by the option of mercury.h
};

class Registry {
  public:
    /// Is told the deadlines of job NUMBER; none at all when it has ended.
    using Announce = std::function<void(unsigned number, const Deadlines& deadlines)>;

    /// Is told of each job that has other members, or members with other layers; without members it
    /// is about to go. Says whether the kernel has its layers for the socket option.
    using Observe = std::function<bool(const Job& job)>;

    /// There are numbers 1 to NUMBERS - 1: 0 is for programs that mark their sockets themselves.
    Registry(
        unsigned numbers, Announce announce,
        Observe observe = [](const Job& /*job*/) { return false; });
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    /// Those above, and those TAKEN by others, are not given out again; who has one keeps it.
    void set_numbers(unsigned numbers, std::set<unsigned> taken) {
        numbers_ = numbers;
        taken_ = std::move(taken);
    }

    /// BEFORE, what this connection declared earlier or nullptr, is replaced unless this fails.
    std::variant<Member*, hints::Failure> declare(User& user, const hints::DeclareJob& wanted,
                                                  Member* before);
    void leave(Member& member);
    void assigned(Member& member, std::uint64_t cookie, std::size_t layer);
    void step(Member& member, Clock::time_point now);
    /// Notices who has become stale. To be called about once a second.
    void tick(Clock::time_point now);

    /// Of one user, or of all.
    std::vector<hints::Status::Job> status(std::optional<std::uint32_t> uid) const;
    const std::list<Job>& jobs() const { return jobs_; }

  private:
    Job* find(const User& user, const std::string& name);
    std::optional<unsigned> free_number(std::optional<unsigned> wish);
    std::variant<Job*, hints::Failure> join(User& user, const hints::DeclareJob& wanted);
    void update(Job& job);

    unsigned numbers_;
    std::set<unsigned> taken_;
    Announce announce_;
    Observe observe_;
    std::list<Job> jobs_;
    // When each number was last given back, in a count of those events: sockets that outlive their
    // job keep its mark, so the one that has been free for longest is given out first.
    std::vector<std::uint64_t> given_back_;
    std::uint64_t events_ = 0;
};

}  // namespace mercury::daemon
