// SPDX-License-Identifier: MIT
#include "replay/strategy_parameters.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "strategy_test_rig.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace mercury::replay::test;
using Catch::Matchers::Contains;

TEST_CASE("an unknown strategy is told all there are", "[strategy]") {
    const std::string message = refusal({"fofi", {}});
    CHECK_THAT(message, Contains("\"fofi\""));
    for (const std::string& name : strategy_names())
        CHECK_THAT(message, Contains(name));
}

TEST_CASE("every strategy works without parameters", "[strategy]") {
    for (const std::string& name : strategy_names())
        CHECK(make_strategy({name, {}}));
}

TEST_CASE("an unknown parameter is told all there are", "[strategy]") {
    const std::string message = refusal({"p3", {{"slcie", "1kb"}}});
    CHECK_THAT(message, Contains("strategy p3 has no parameter \"slcie\""));
    CHECK_THAT(message, Contains("mark, slice, startup, window"));
    // TensorLights is nothing but marks.
    CHECK_THAT(refusal({"tensorlights", {{"mark", "no"}}}), Contains("no parameter \"mark\""));
}

TEST_CASE("a wrong value is refused with its name and what is allowed", "[strategy]") {
    const auto [strategy, name, value, allowed] =
        GENERATE(table<std::string, std::string, std::string, std::string>({
            {"p3", "slice", "0", "1kb to 1gb"},
            {"p3", "slice", "2gb", "1kb to 1gb"},
            {"p3", "slice", "many", "1kb to 1gb"},
            {"p3", "startup", "2s", "0 to 1s"},
            {"p3", "startup", "-1us", "0 to 1s"},
            {"bytescheduler", "partition", "1", "1kb to 1gb"},
            {"bytescheduler", "credit", "4", "4000000 to 1gb"},
            {"allreduce", "bucket", "x", "1kb to 1gb"},
            {"allreduce", "concurrent", "0", "1 to 64"},
            {"allreduce", "concurrent", "2x", "1 to 64"},
            {"allreduce", "overlap", "true", "yes or no"},
            {"fifo", "mark", "1", "yes or no"},
            {"fifo", "window", "1000", "4kb to 4mb"},
            {"tictac", "window", "65mb", "4kb to 4mb"},
            {"tensorlights", "window", "", "4kb to 4mb"},
            {"mercury-user", "window", "0", "4kb to 4mb"},
        }));
    const std::string message = refusal({strategy, {{name, value}}});
    CHECK_THAT(message, Contains("strategy " + strategy + ": " + name + " must be " + allowed));
    CHECK_THAT(message, Contains("not \"" + value + "\""));
}

TEST_CASE("credit is at least one partition", "[strategy]") {
    CHECK_THAT(refusal({"bytescheduler", {{"partition", "1mb"}, {"credit", "512kb"}}}),
               Contains("credit must be 1mb to 1gb"));
    CHECK(make_strategy({"bytescheduler", {{"partition", "1mb"}, {"credit", "1mb"}}}));
}

namespace {

/// What a strategy wants for its first connection.
Endpoint first_endpoint(const StrategySpec& spec, unsigned job_number) {
    Job job = job_of(profile_of({100}), 2, 1);
    job.number = job_number;
    std::optional<Endpoint> seen;
    const Connector connector = [&](std::size_t, std::size_t,
                                    const Endpoint& endpoint) -> Result<Connection> {
        seen = endpoint;
        return Error{"no connection today"};
    };
    auto strategy = make_strategy(spec);
    REQUIRE(strategy);
    const auto exchange =
        dynamic_cast<SocketStrategy&>(*strategy.value()).connect_by(job, connector);
    REQUIRE_FALSE(exchange);
    CHECK(exchange.error().message == "no connection today");
    REQUIRE(seen);
    return *seen;
}

}  // namespace

TEST_CASE("no strategy but TensorLights marks unless told to", "[strategy]") {
    for (const std::string& name : baselines) {
        if (name == "tensorlights")
            continue;
        CHECK(first_endpoint({name, {}}, 3).mark == 0);
        CHECK(first_endpoint({name, {}}, 3).dscp == 0);
        const Endpoint marked = first_endpoint({name, {{"mark", "yes"}}}, 3);
        CHECK(marked.mark == 0x30001);
        CHECK(marked.dscp == 56);
    }
}

TEST_CASE("TensorLights orders jobs in one job's bands", "[strategy]") {
    const auto [job, mark, dscp] = GENERATE(table<unsigned, std::uint32_t, unsigned>({
        {0, 1, 56},
        {1, 2, 48},
        {6, 7, 8},
        {200, 201, 8},
    }));
    const Endpoint endpoint = first_endpoint({"tensorlights", {}}, job);
    CHECK(endpoint.mark == mark);
    CHECK(endpoint.dscp == dscp);
}

TEST_CASE("the window is given to every connection", "[strategy]") {
    for (const std::string& name : baselines) {
        CHECK(first_endpoint({name, {}}, 0).window == 0);
        CHECK(first_endpoint({name, {{"window", "64kb"}}}, 0).window == 65'536);
    }
}

TEST_CASE("a job has so many ports and no more", "[strategy]") {
    Job job = job_of(profile_of({100}), 2, 1);
    job.first_port = 65'534;  // and needs four
    auto strategy = make_strategy({"fifo", {}});
    REQUIRE(strategy);
    const auto exchange =
        dynamic_cast<SocketStrategy&>(*strategy.value()).connect_by(job, over_loopback());
    REQUIRE_FALSE(exchange);
    CHECK_THAT(exchange.error().message, Contains("job job needs more"));
}

TEST_CASE("a job without workers or servers is refused", "[strategy]") {
    for (const std::string& name : baselines) {
        auto strategy = make_strategy({name, {}});
        REQUIRE(strategy);
        auto& sockets = dynamic_cast<SocketStrategy&>(*strategy.value());
        CHECK_FALSE(sockets.connect_by(job_of(profile_of({1}), 0, 1), over_loopback()));
        if (name != "allreduce")
            CHECK_FALSE(sockets.connect_by(job_of(profile_of({1}), 1, 0), over_loopback()));
    }
}
