// SPDX-License-Identifier: MIT
#include "daemon/registry.hpp"

#include <map>

#include <catch2/catch.hpp>

#include "running_daemon.hpp"

using namespace mercury;
using namespace mercury::daemon;
using namespace std::chrono_literals;
using hints::Code;
using hints::Failure;

namespace {

struct Jobs {
    Limits limits;
    std::map<unsigned, Deadlines> announced;
    Registry registry{
        4, [this](unsigned number, const Deadlines& deadlines) { announced[number] = deadlines; }};
    User alice{1000, limits};
    User bob{1001, limits};

    Member& declare(User& user, const hints::DeclareJob& job, Member* before = nullptr) {
        const auto declared = registry.declare(user, job, before);
        if (const auto* const failure = std::get_if<Failure>(&declared))
            FAIL(failure->message);
        return *std::get<Member*>(declared);
    }
    Code refused(User& user, const hints::DeclareJob& job) {
        return std::get<Failure>(registry.declare(user, job, nullptr)).code;
    }
};

hints::DeclareJob with_number(const std::string& name, unsigned number) {
    hints::DeclareJob job = four_layers(name);
    job.number = number;
    return job;
}

}  // namespace

TEST_CASE("a job gets a number, marks, and deadlines that the kernel hears of", "[registry]") {
    Jobs jobs;
    const Member& member = jobs.declare(jobs.alice, four_layers());
    CHECK(member.job->number == 1);
    REQUIRE(member.plan.size() == 2);
    CHECK(member.plan[0].mark == 0x10001);
    CHECK(member.plan[1].mark == 0x10002);
    CHECK(jobs.announced.at(1) == Deadlines{1us, 6ms});
}

TEST_CASE("clients of one user with one name are one job; others are not", "[registry]") {
    Jobs jobs;
    Member& first = jobs.declare(jobs.alice, four_layers());
    Member& second = jobs.declare(jobs.alice, four_layers());
    CHECK(first.job == second.job);
    CHECK(jobs.declare(jobs.alice, four_layers("other")).job->number == 2);
    CHECK(jobs.declare(jobs.bob, four_layers()).job->number == 3);
    CHECK(jobs.alice.jobs == 2);

    jobs.registry.leave(first);
    CHECK(jobs.registry.jobs().size() == 3);
    CHECK_FALSE(jobs.announced.at(1).empty());
    jobs.registry.leave(second);
    CHECK(jobs.registry.jobs().size() == 2);
    CHECK(jobs.announced.at(1).empty());
    CHECK(jobs.alice.jobs == 1);
    CHECK(jobs.alice.layers == 4);
}

TEST_CASE("numbers run out, and the one that was free for longest is next", "[registry]") {
    Jobs jobs;
    Member& one = jobs.declare(jobs.alice, four_layers("a"));
    Member& two = jobs.declare(jobs.alice, four_layers("b"));
    jobs.declare(jobs.alice, four_layers("c"));
    CHECK(jobs.refused(jobs.bob, four_layers("d")) == Code::Limit);
    jobs.registry.leave(two);
    jobs.registry.leave(one);
    CHECK(jobs.declare(jobs.bob, four_layers("d")).job->number == 2);
}

TEST_CASE("a job that comes back gets its number, unless it is taken or was never one",
          "[registry]") {
    Jobs jobs;
    CHECK(jobs.declare(jobs.alice, with_number("a", 3)).job->number == 3);
    CHECK(jobs.declare(jobs.bob, with_number("b", 3)).job->number == 1);
    CHECK(jobs.declare(jobs.bob, with_number("c", 0)).job->number == 2);
    CHECK(jobs.refused(jobs.bob, with_number("d", 200)) == Code::Limit);
    // With the job itself still there its number is no question.
    CHECK(jobs.declare(jobs.alice, with_number("a", 2)).job->number == 3);
}

TEST_CASE("each user has its limits", "[registry]") {
    Jobs jobs;
    jobs.limits.jobs = 1;
    jobs.limits.layers = 8;
    Member& member = jobs.declare(jobs.alice, four_layers());
    CHECK(jobs.refused(jobs.alice, four_layers("second")) == Code::Limit);
    jobs.declare(jobs.alice, four_layers());
    CHECK(jobs.refused(jobs.alice, four_layers()) == Code::Limit);
    // To replace what there is needs no more.
    jobs.declare(jobs.alice, four_layers(), &member);
    CHECK(jobs.alice.layers == 8);
    jobs.declare(jobs.bob, four_layers());
}

TEST_CASE("a refused declaration leaves the one before it as it was", "[registry]") {
    Jobs jobs;
    jobs.limits.jobs = 1;
    Member& member = jobs.declare(jobs.alice, four_layers());
    jobs.registry.assigned(member, 77, 3);
    const auto refused = jobs.registry.declare(jobs.alice, four_layers("other"), &member);
    CHECK(std::holds_alternative<Failure>(refused));
    CHECK(jobs.registry.jobs().size() == 1);
    CHECK(member.sockets.size() == 1);
    CHECK(jobs.alice.layers == 4);
}

TEST_CASE("sockets stay with a job that is declared anew, as far as their layers do",
          "[registry]") {
    Jobs jobs;
    Member& member = jobs.declare(jobs.alice, four_layers());
    jobs.registry.assigned(member, 1, 0);
    jobs.registry.assigned(member, 2, 3);
    jobs.registry.assigned(member, 2, 3);
    CHECK(jobs.alice.sockets == 2);
    hints::DeclareJob fewer = four_layers();
    fewer.layers.resize(2);
    Member& again = jobs.declare(jobs.alice, fewer, &member);
    CHECK(again.sockets.size() == 1);
    CHECK(jobs.alice.sockets == 1);
    jobs.registry.leave(again);
    CHECK(jobs.alice.sockets == 0);
    CHECK(jobs.alice.layers == 0);
}

TEST_CASE("steps correct the deadlines, and none for long takes them away", "[registry]") {
    Jobs jobs;
    Member& member = jobs.declare(jobs.alice, four_layers());
    Clock::time_point now{1h};
    for (int i = 0; i < 5; ++i, now += 24ms)  // twice the sum of the layers' times
        jobs.registry.step(member, now);
    CHECK(jobs.announced.at(1) == Deadlines{1us, 12ms});

    // A tenth more or less is not worth a request to the kernel.
    jobs.announced.clear();
    for (int i = 0; i < 9; ++i, now += 25ms)
        jobs.registry.step(member, now);
    CHECK(jobs.announced.empty());

    jobs.registry.tick(now + 11s);
    CHECK(jobs.announced.at(1).empty());
    jobs.registry.step(member, now + 12s);
    CHECK(jobs.announced.at(1) == Deadlines{1us, 12ms});
}

TEST_CASE("who never announces a step keeps what it declared", "[registry]") {
    Jobs jobs;
    jobs.declare(jobs.alice, four_layers());
    jobs.announced.clear();
    jobs.registry.tick(Clock::time_point{1000h});
    CHECK(jobs.announced.empty());
}

TEST_CASE("a job has the earliest deadline of its clients", "[registry]") {
    Jobs jobs;
    jobs.declare(jobs.alice, four_layers());
    hints::DeclareJob faster = four_layers();
    for (Layer& layer : faster.layers)
        layer.backward = 1ms;
    Member& member = jobs.declare(jobs.alice, faster);
    CHECK(jobs.announced.at(1) == Deadlines{1us, 4ms});
    jobs.registry.leave(member);
    CHECK(jobs.announced.at(1) == Deadlines{1us, 6ms});
}

TEST_CASE("status shows a user its own jobs", "[registry]") {
    Jobs jobs;
    Member& member = jobs.declare(jobs.alice, four_layers());
    jobs.declare(jobs.bob, four_layers("his"));
    jobs.registry.assigned(member, 1, 0);
    jobs.registry.assigned(member, 2, 3);
    jobs.registry.assigned(member, 3, 3);
    const auto all = jobs.registry.status(std::nullopt);
    CHECK(all.size() == 2);
    const auto hers = jobs.registry.status(1000);
    REQUIRE(hers.size() == 1);
    CHECK(hers[0].name == "net");
    REQUIRE(hers[0].classes.size() == 2);
    CHECK(hers[0].classes[0].sockets == 1);
    CHECK(hers[0].classes[1].sockets == 2);
    CHECK(hers[0].classes[1].deadline == 6ms);
    CHECK(jobs.registry.status(1002).empty());
}

TEST_CASE("a number that a rule marks with is not given out", "[registry]") {
    Jobs jobs;
    jobs.registry.set_numbers(4, {1, 3});
    CHECK(jobs.declare(jobs.alice, four_layers()).job->number == 2);
    CHECK(jobs.refused(jobs.alice, four_layers("other")) == Code::Limit);
    CHECK(jobs.declare(jobs.alice, with_number("net", 1)).job->number == 2);
}
