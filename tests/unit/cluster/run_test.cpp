// SPDX-License-Identifier: MIT
//
// One run of a case, in virtual time: its figures are the network's and the model's.
#include <memory>

#include <catch2/catch.hpp>

#include "plain_strategy.hpp"
#include "replay/case_progress.hpp"
#include "replay/cluster_run.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace mercury::replay::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::uint64_t megabyte = 1'000'000;

/// What give_up() throws here, where there is no process of its own to end.
struct GaveUp {
    std::string why;
};

ClusterCase made_case(std::size_t hosts) {
    ClusterCase one;
    one.network.hosts = hosts;
    one.network.ports = SwitchSettings{};
    one.run = {1, 3, 1};
    return one;
}

CaseJob made_job(const Placement& hosts, std::vector<Layer> layers,
                 const std::string& strategy = "plain") {
    CaseJob job;
    job.name = "job";
    job.profile = {"made", "", std::move(layers)};
    job.hosts = hosts;
    job.spec = {strategy, {}};
    return job;
}

const Placement colocated{{0, 1}, {0, 1}};

Json outcome_of(const ClusterCase& one, bool timeline = false) {
    REQUIRE(virtual_time());
    RunHooks hooks;
    hooks.timeline = timeline;
    hooks.give_up = [](const Error& error) { throw GaveUp{error.message}; };
    CaseRun run(one, std::move(hooks));
    const auto outcome = run.run(&make_plain);
    INFO((outcome ? "" : outcome.error().message));
    REQUIRE(outcome);
    return outcome.value();
}

std::vector<double> times(const Json& outcome, const std::string& job = "job") {
    return outcome["jobs"][job]["iterations_ms"].get<std::vector<double>>();
}

double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values)
        sum += value;
    return sum / static_cast<double>(values.size());
}

}  // namespace

TEST_CASE("a job that mostly computes takes as long as that", "[run]") {
    auto one = made_case(2);
    one.jobs = {made_job(colocated, {{"a", 10ms, 20ms, 4000}, {"b", 30ms, 40ms, 4000}})};
    const auto iterations = times(outcome_of(one));
    REQUIRE(iterations.size() == 3);
    // 100 ms, and the layer that is ready last comes back in two delays.
    for (const double time : iterations)
        CHECK(time == Approx(100.05).margin(0.03));
}

TEST_CASE("a job that mostly sends comes near the bound, never below", "[run]") {
    const auto placement = GENERATE(Placement{{0, 1}, {0, 1}}, Placement{{0, 1}, {2, 3}});
    auto one = made_case(4);
    // One layer: all of it is pushed, and only then comes back.
    one.jobs = {made_job(placement, {{"a", 0ms, 0ms, 50 * megabyte}})};
    const double bound = to_ms(bound_of(one.jobs[0], one.network).wire);
    const auto iterations = times(outcome_of(one));
    CHECK(mean(iterations) >= bound);
    CHECK(mean(iterations) <= 2.3 * bound);
}

TEST_CASE("two jobs: what counts happens while both train", "[run]") {
    auto one = made_case(4);
    one.jobs = {made_job({{0, 1}, {0, 1}}, {{"a", 10ms, 0ms, 4000}}),
                made_job({{2, 3}, {2, 3}}, {{"a", 35ms, 0ms, 4000}})};
    one.jobs[0].name = "quick";
    one.jobs[1].name = "slow";
    const Json outcome = outcome_of(one);
    CHECK(times(outcome, "slow").size() == 3);
    CHECK(times(outcome, "quick").size() == 9);
    CHECK(mean(times(outcome, "slow")) == Approx(35.05).margin(0.03));
    CHECK(mean(times(outcome, "quick")) == Approx(10.05).margin(0.03));
}

TEST_CASE("background flows are measured while the job is", "[run]") {
    auto one = made_case(4);
    one.jobs = {made_job(colocated, {{"a", 100ms, 0ms, 4000}})};
    one.background = {{"elsewhere", {{2, 3}}, 2}, {"both", {{2, 0}, {3, 1}}, 1}};
    const Json outcome = outcome_of(one);
    const double link = tcp_goodput(one.network.rate);
    const double elsewhere = outcome["background"]["elsewhere"];
    const double both = outcome["background"]["both"];
    // Hosts 2 and 3 send all of it.
    CHECK(elsewhere + both == Approx(2 * link).epsilon(0.05));
    CHECK(elsewhere > 0.1 * link);
}

TEST_CASE("a dip of one link slows the job as the bound says it may", "[run]") {
    auto one = made_case(4);
    one.jobs = {made_job({{0, 1}, {2, 3}}, {{"a", 0ms, 0ms, 50 * megabyte}})};
    one.run = {1, 6, 1};
    const double alone = mean(times(outcome_of(one)));
    one.rate_changes = {{"dip", 1, 10ms, 100ms, 0.5}};
    const double dipped = mean(times(outcome_of(one)));
    // Half of 100 ms is lost, in 6 iterations.
    CHECK(dipped - alone > 0.5 * 50 / 6);
    CHECK(dipped - alone < 2 * 50.0 / 6);
    CHECK(dipped >= to_ms(bound_with_changes(one, one.jobs[0])));
    // A link that carries nothing of the job changes nothing.
    one.network.hosts = 5;
    one.rate_changes[0].host = 4;
    CHECK(mean(times(outcome_of(one))) == Approx(alone).epsilon(0.02));
}

TEST_CASE("packets lost are counted where they were lost", "[run]") {
    auto one = made_case(3);
    one.network.ports = SwitchSettings{200'000, 1};
    one.jobs = {made_job(colocated, {{"a", 100ms, 0ms, 4000}})};
    one.background = {{"in", {{0, 2}, {1, 2}}, 4}};
    const Json outcome = outcome_of(one);
    CHECK(outcome["drops"]["port 2"] > 10);
    CHECK(outcome["drops"]["port 0"] == 0);
    CHECK(outcome["drops"]["host 0"] == 0);
    CHECK(outcome["retransmits"] > 10);
}

TEST_CASE("a typical iteration is recorded", "[run]") {
    auto one = made_case(2);
    one.jobs = {made_job(colocated, {{"a", 2ms, 3ms, 5 * megabyte}, {"b", 4ms, 1ms, megabyte}})};
    const Json timeline = outcome_of(one, true)["jobs"]["job"]["timeline"];
    CHECK(timeline["rank"] == 0);
    CHECK(timeline["backward"] == Json{{0, 1.0, 4.0}, {1, 0.0, 1.0}});
    const auto& forward = timeline["forward"];
    CHECK(forward[0][2].get<double>() - forward[0][1].get<double>() == Approx(2));
    CHECK(forward[1][1].get<double>() >= forward[0][2].get<double>());
    CHECK(forward[1][2].get<double>() == Approx(timeline["iteration_ms"].get<double>()));
    // Half of the model is pushed, and half of it answered to the other worker.
    double sent = 0;
    double received = 0;
    for (const auto& sample : timeline["wire"]) {
        sent += sample[1].get<double>();
        received += sample[2].get<double>();
    }
    CHECK(sent == Approx(6.0 * megabyte).epsilon(0.06));
    CHECK(received == Approx(6.0 * megabyte).epsilon(0.06));
}

TEST_CASE("a strategy that cannot connect is an error with the job's name", "[run]") {
    auto one = made_case(2);
    one.jobs = {made_job(colocated, {{"a", 1ms, 1ms, 4000}})};
    one.jobs[0].spec.parameters = {{"fail", "connect"}};
    CaseRun run(one, {});
    const auto outcome = run.run(&make_plain);
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error().message == "job: refuses to connect");
}
