// SPDX-License-Identifier: MIT
#include "daemon/registry.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace mercury::daemon {
namespace {

using hints::Code;
using hints::Failure;

/// Deadlines follow a pace that has changed by more than this; less would not be worth a request to
/// the kernel in every iteration.
constexpr double pace_step = 0.1;

Failure failure(Code code, std::string message) {
    return {code, std::move(message), "job", {}};
}

bool differs(std::chrono::nanoseconds now, std::optional<std::chrono::nanoseconds> before) {
    const auto count = [](std::chrono::nanoseconds time) {
        return static_cast<double>(time.count());
    };
    return !before || std::abs(count(now) - count(*before)) > pace_step * count(*before);
}

/// The earliest that any member has for each band.
Deadlines deadlines_of(const Job& job) {
    Deadlines deadlines;
    for (const auto& member : job.members) {
        if (member->stale)
            continue;
        deadlines.resize(std::max(deadlines.size(), member->plan.size()));
        for (std::size_t band = 0; band < member->plan.size(); ++band) {
            const auto deadline = member->plan[band].deadline;
            if (deadline && (!deadlines[band] || *deadline < *deadlines[band]))
                deadlines[band] = deadline;
        }
    }
    return deadlines;
}

/// They keep their marks, so far as there still is such a layer.
void take_sockets(Member& from, Member& to) {
    for (auto next = from.sockets.begin(); next != from.sockets.end();) {
        const auto here = next++;
        if (here->second < to.profile.layers.size())
            to.sockets.insert(from.sockets.extract(here));
    }
}

hints::Status::Job status_of(const Job& job) {
    hints::Status::Job status;
    status.number = job.number;
    status.name = job.name;
    status.user = job.user->uid;
    status.clients = job.members.size();
    status.steps = job.steps;
    for (const auto& member : job.members) {
        if (!status.interval)
            status.interval = member->pace.interval();
        for (std::size_t c = status.classes.size(); c < member->plan.size(); ++c)
            status.classes.push_back({member->plan[c].mark, 0, {}});
        for (const auto& [cookie, layer] : member->sockets)
            ++status.classes[class_of_layer(member->plan, layer)].sockets;
    }
    const std::size_t known = std::min(job.deadlines.size(), status.classes.size());
    for (std::size_t c = 0; c < known; ++c)
        status.classes[c].deadline = job.deadlines[c];
    return status;
}

}  // namespace

Registry::Registry(unsigned numbers, Announce announce, Observe observe)
    : numbers_(numbers),
      announce_(std::move(announce)),
      observe_(std::move(observe)),
      given_back_(hints::job_number_max + 1, 0) {}

Job* Registry::find(const User& user, const std::string& name) {
    const auto found = std::ranges::find_if(
        jobs_, [&](const Job& job) { return job.user == &user && job.name == name; });
    return found == jobs_.end() ? nullptr : &*found;
}

std::optional<unsigned> Registry::free_number(std::optional<unsigned> wish) {
    const auto is_free = [this](unsigned number) {
        return !taken_.contains(number) && std::ranges::none_of(jobs_, [number](const Job& job) {
            return job.number == number;
        });
    };
    if (wish && *wish >= 1 && *wish < numbers_ && is_free(*wish))
        return wish;
    std::optional<unsigned> longest;
    for (unsigned number = 1; number < numbers_; ++number) {
        if (is_free(number) && (!longest || given_back_[number] < given_back_[*longest]))
            longest = number;
    }
    return longest;
}

std::variant<Job*, Failure> Registry::join(User& user, const hints::DeclareJob& wanted) {
    if (Job* const job = find(user, wanted.name))
        return job;
    if (user.jobs >= user.limits().jobs) {
        return failure(Code::Limit, fmt::format("user {} has {} jobs, as many as are allowed",
                                                user.uid, user.jobs));
    }
    const auto number = free_number(wanted.number);
    if (!number)
        return failure(Code::Limit, fmt::format("all {} job numbers are in use", numbers_ - 1));
    ++user.jobs;
    return &jobs_.emplace_back(Job{*number, wanted.name, &user, {}, 0, {}, false});
}

std::variant<Member*, Failure> Registry::declare(User& user, const hints::DeclareJob& wanted,
                                                 Member* before) {
    const std::size_t freed = before == nullptr ? 0 : before->profile.layers.size();
    if (user.layers - freed + wanted.layers.size() > user.limits().layers) {
        return failure(Code::Limit, fmt::format("user {} would have more than {} layers", user.uid,
                                                user.limits().layers));
    }
    Profile profile{wanted.name, "hints", wanted.layers};
    // The number of classes is the only thing that it can refuse, whatever the job.
    if (const auto possible = plan_layers(profile, wanted.classes, 0); !possible)
        return failure(Code::Invalid, possible.error().message);
    auto joined = join(user, wanted);
    if (const auto* const refused = std::get_if<Failure>(&joined))
        return *refused;
    Job& job = *std::get<Job*>(joined);

    Member& member = *job.members.emplace_back(std::make_unique<Member>());
    member.job = &job;
    member.profile = std::move(profile);
    member.max_classes = wanted.classes;
    member.plan = plan_layers(member.profile, wanted.classes, job.number).value();
    user.layers += wanted.layers.size();
    if (before != nullptr) {
        if (before->job == &job)
            take_sockets(*before, member);
        leave(*before);
    }
    update(job);
    job.has_option = observe_(job);
    return &member;
}

void Registry::leave(Member& member) {
    Job& job = *member.job;
    User& user = *job.user;
    user.layers -= member.profile.layers.size();
    user.sockets -= member.sockets.size();
    std::erase_if(job.members, [&](const auto& other) { return other.get() == &member; });
    job.has_option = observe_(job);
    if (!job.members.empty())
        return update(job);
    --user.jobs;
    given_back_[job.number] = ++events_;
    const unsigned number = job.number;
    std::erase_if(jobs_, [number](const Job& other) { return other.number == number; });
    announce_(number, {});
}

void Registry::assigned(Member& member, std::uint64_t cookie, std::size_t layer) {
    if (member.sockets.insert_or_assign(cookie, layer).second)
        ++member.job->user->sockets;
}

void Registry::step(Member& member, Clock::time_point now) {
    ++member.job->steps;
    member.pace.step(now);
    const bool was_stale = std::exchange(member.stale, false);
    const auto interval = member.pace.interval();
    if (interval && differs(*interval, member.interval)) {
        member.interval = interval;
        member.plan =
            plan_layers(member.profile, member.max_classes, member.job->number, interval).value();
        update(*member.job);
    } else if (was_stale) {
        update(*member.job);
    }
}

void Registry::tick(Clock::time_point now) {
    for (Job& job : jobs_) {
        for (const auto& member : job.members)
            member->stale = member->pace.is_stale(now);
        update(job);
    }
}

void Registry::update(Job& job) {
    Deadlines deadlines = deadlines_of(job);
    if (deadlines == job.deadlines)
        return;
    job.deadlines = std::move(deadlines);
    announce_(job.number, job.deadlines);
}

std::vector<hints::Status::Job> Registry::status(std::optional<std::uint32_t> uid) const {
    std::vector<hints::Status::Job> status;
    for (const Job& job : jobs_) {
        if (!uid || job.user->uid == *uid)
            status.push_back(status_of(job));
    }
    return status;
}

}  // namespace mercury::daemon
