// SPDX-License-Identifier: MIT
#include "replay/report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// fifo 400 ms, mercury 250 ms, bound 200 ms (all of it compute).
Experiment example() {
    Experiment experiment;
    experiment.settings.arms = parse_arms("fifo,mercury").value();
    experiment.profile = {"net", "net.csv", {{"a", 50ms, 60ms, 1'000}, {"b", 40ms, 50ms, 9'000}}};
    experiment.classes = group_layers(experiment.profile, 4).value();

    const Clock::time_point start{1h};
    for (const Arm* arm : experiment.settings.arms) {
        const auto time = arm->name == "fifo" ? 400ms : 250ms;
        ArmResult result;
        result.arm = arm;
        result.connections = 2 * (arm->one_class ? 1 : experiment.classes.size());
        result.iterations = {time, time};
        result.median = time;
        result.goodput = 9.5e9;
        result.typical = {start,
                          start + time,
                          {{start + 50ms, start + 110ms}, {start, start + 50ms}},
                          {{start + 300ms, start + 350ms}, {start + 350ms, start + time}}};
        const Message layer_b{1, 1, 9'000};
        result.pushed = {{layer_b, 4'000, false, start + 60500us},
                         {layer_b, 5'000, true, start + 60600us}};
        result.pulled = {{layer_b, 9'000, true, start + 70500us}};
        experiment.arms.push_back(result);
    }
    return experiment;
}

}  // namespace

TEST_CASE("the JSON has the iteration times and the settings", "[report]") {
    const auto json = nlohmann::json::parse(experiment_json(example()));
    CHECK(json["iteration_ms"] ==
          nlohmann::json({{"fifo", 400.0}, {"mercury", 250.0}, {"bound", 200.0}}));
    CHECK(json["rate"] == "10gbit");
    CHECK(json["delay"] == "25us");
    CHECK(json["profile"]["name"] == "net");
    CHECK(json["profile"]["param_bytes"] == 10'000);
    CHECK(json["classes"].size() == 2);
    CHECK(json["classes"][0]["mark"] == 1);
    CHECK(json["arms"]["fifo"]["connections"] == 2);
    CHECK(json["arms"]["mercury"]["qdisc"] == "mercury");
    CHECK(json["arms"]["mercury"]["iterations_ms"] == nlohmann::json({250.0, 250.0}));
    CHECK(json["arms"]["mercury"]["gpu_waits_ms"] == 50.0);
}

TEST_CASE("the timeline counts from the start of the iteration", "[report]") {
    const auto json = nlohmann::json::parse(timeline_json(example()));
    const auto& arm = json["arms"]["mercury"];
    CHECK(arm["iteration_ms"] == 250.0);
    CHECK(arm["backward"][1] == nlohmann::json({1, 0.0, 50.0}));
    CHECK(arm["forward"][0] == nlohmann::json({0, 300.0, 350.0}));
    const double bin_ms = json["bin_ms"];
    CHECK(bin_ms == 1.0);  // 400 ms in at most 600 samples
    CHECK(arm["push"] == nlohmann::json({{60, 1, 9'000}}));
    CHECK(arm["pull"] == nlohmann::json({{70, 1, 9'000}}));
}

TEST_CASE("a piece is spread over the time that it was on the wire", "[report]") {
    Experiment experiment = example();
    // 2.5 MB are 2 ms at 10 Gbit/s.
    experiment.arms[0].pushed = {
        {{1, 1, 2'500'000}, 2'500'000, true, experiment.arms[0].typical.start + 60500us}};
    const auto json = nlohmann::json::parse(timeline_json(experiment));
    CHECK(json["arms"]["fifo"]["push"] ==
          nlohmann::json({{58, 1, 625'000}, {59, 1, 1'250'000}, {60, 1, 625'000}}));
}

TEST_CASE("the table has a line for each arm and the bound", "[report]") {
    const std::string text = describe_experiment(example());
    CHECK_THAT(text, Contains("mercury      250.0 ms       1.60x      80 %    50.0 ms"));
    CHECK_THAT(text, Contains("bound        200.0 ms       2.00x     100 %"));
    CHECK_THAT(text, Contains("max(compute 200.0 ms, wire 0.0 ms)"));
}

TEST_CASE("the gain is taken apart when every step was measured", "[report]") {
    Experiment experiment = example();
    CHECK(describe_experiment(experiment).find("from fifo to mercury") == std::string::npos);

    ArmResult step = experiment.arms[0];
    for (const Arm* arm : parse_arms("overlap,pfifo").value()) {
        step.arm = arm;
        step.median -= 50ms;
        experiment.arms.push_back(step);
    }
    // 400, 350, 300, 250 ms
    CHECK_THAT(
        describe_experiment(experiment),
        Contains("1.60x = 1.14x push and pull overlap x 1.17x") && Contains("x 1.20x packets"));
}

TEST_CASE("without the fifo arm there is no speed-up to show", "[report]") {
    Experiment experiment = example();
    experiment.arms.erase(experiment.arms.begin());
    CHECK_THAT(describe_experiment(experiment), Contains("mercury      250.0 ms           -"));
}

TEST_CASE("a profile is shown with its classes and the bound", "[report]") {
    const Experiment experiment = example();
    const std::string text =
        describe_profile(experiment.profile, experiment.classes, experiment.settings.rate);
    CHECK_THAT(text, Contains("class 1: mark 2, layers 1 to 1, 0.0 MB"));
    CHECK_THAT(text, Contains("Bound at 10gbit: 200.0 ms"));
}

TEST_CASE("the table of models has a row for each", "[models]") {
    const auto table = describe_models({}, Rate{10'000'000'000});
    REQUIRE(table);
    for (const BuiltinModel& entry : builtin_models())
        CHECK_THAT(table.value(), Contains("| " + std::string(entry.name)));
    CHECK_THAT(table.value(), Contains("138357544") && Contains("124439808"));
    // 138,357,544 x 4 bytes at the TCP goodput of 10 Gbit/s.
    CHECK_THAT(table.value(), Contains("462.9 "));
    CHECK_FALSE(describe_models({-1, 1}, Rate{10'000'000'000}));
}
