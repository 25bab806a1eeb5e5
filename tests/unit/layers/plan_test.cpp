// SPDX-License-Identifier: MIT
#include "layers/plan.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>

#include <catch2/catch.hpp>

#include "layers/models.hpp"

using namespace mercury;
using namespace std::chrono_literals;

namespace {

std::vector<PlannedClass> plan_of(const Profile& profile, std::size_t max = classes_default,
                                  std::optional<std::chrono::nanoseconds> interval = {}) {
    const auto plan = plan_layers(profile, max, 5, interval);
    REQUIRE(plan);
    return plan.value();
}

Profile model(std::string_view name) {
    auto profile = model_by_name(name, {});
    REQUIRE(profile);
    return std::move(profile).value();
}

std::vector<std::size_t> last_layers(const std::vector<PlannedClass>& plan) {
    std::vector<std::size_t> last;
    for (const PlannedClass& planned : plan)
        last.push_back(planned.layers.last);
    return last;
}

/// What must be true of every plan, whatever the layers.
void check_rule(const Profile& profile, std::size_t max) {
    const auto plan = plan_of(profile, max);
    CHECK(plan.size() <= max);
    for (std::size_t c = 0; c < plan.size(); ++c) {
        INFO("class " << c << " of " << plan.size());
        CHECK(plan[c].mark == (5U << 16 | (c + 1)));
        REQUIRE(plan[c].deadline);
        if (c > 0)
            CHECK(*plan[c].deadline >= *plan[c - 1].deadline);
        for (std::size_t i = plan[c].layers.first; i <= plan[c].layers.last; ++i)
            CHECK(class_of_layer(plan, i) == c);
    }
    // No layer waits in its class for more than half of all bytes, unless it is itself so large, or
    // behind one: the cuts are where the bytes are.
    if (max > 1) {
        const auto largest = std::ranges::max(profile.layers, {}, &Layer::bytes).bytes;
        for (const PlannedClass& planned : plan)
            CHECK(planned.layers.bytes <= profile.bytes() / 2 + largest);
    }
}

}  // namespace

TEST_CASE("slack is what backward and forward pass have still to do before a layer", "[plan]") {
    const std::vector<Layer> layers{{"a", 1ms, 10ms, 1}, {"b", 2ms, 20ms, 1}, {"c", 4ms, 40ms, 1}};
    CHECK(slack_of(layers) == std::vector<std::chrono::nanoseconds>{0ms, 11ms, 33ms});
}

TEST_CASE(
    "a class has the slack of its first layer; the first class has the shortest that there is",
    "[plan]") {
    const Profile profile{
        "test", "", {{"a", 1ms, 10ms, 1}, {"b", 2ms, 20ms, 9}, {"c", 4ms, 40ms, 10}}};
    const auto plan = plan_of(profile, 2);
    REQUIRE(last_layers(plan) == std::vector<std::size_t>{1, 2});
    CHECK(plan[0].deadline == 1us);
    CHECK(plan[1].deadline == 33ms);
}

TEST_CASE("the time from step to step corrects all times by one factor", "[plan]") {
    const Profile profile{"test", "", {{"a", 1ms, 9ms, 1}, {"b", 5ms, 5ms, 1}}};  // 20 ms
    CHECK(plan_of(profile, 2, 20ms)[1].deadline == 10ms);
    CHECK(plan_of(profile, 2, 50ms)[1].deadline == 25ms);
    CHECK(plan_of(profile, 2, 5ms)[1].deadline == 2500us);
}

TEST_CASE("deadlines stay within what the kernel takes", "[plan]") {
    const Profile profile{"test", "", {{"a", 1ns, 1ns, 1}, {"b", 1h, 1h, 1}}};
    CHECK(plan_of(profile, 2, 1ms)[1].deadline == 1us);
    const Profile slow{"test", "", {{"a", 1h, 1h, 1}, {"b", 1ms, 1ms, 1}}};
    CHECK(plan_of(slow, 2, 100h)[1].deadline == 1h);
}

TEST_CASE("without times there are no deadlines, only an order", "[plan]") {
    const Profile profile{"test", "", {{"a", 0ns, 0ns, 1}, {"b", 0ns, 0ns, 1}}};
    for (const auto& planned : plan_of(profile, 2, 50ms))
        CHECK_FALSE(planned.deadline);
}

TEST_CASE("VGG-16: the convolutions, FC1, the rest", "[plan]") {
    const Profile profile = model("vgg16");
    const auto plan = plan_of(profile);
    REQUIRE(last_layers(plan) == std::vector<std::size_t>{12, 13, 15});
    // Nearly all of the computing is before FC1.
    CHECK(*plan[1].deadline > profile.compute() * 9 / 10);
}

TEST_CASE("many small layers do not share a class with the bulk behind them", "[plan]") {
    // AlexNet: five convolutions with 4 % of the bytes, then three products.
    CHECK(last_layers(plan_of(model("alexnet"))).front() == 4);
    // Sixteen equal layers are what fairness is worst for.
    Profile equal{"equal", "", {}};
    for (int i = 0; i < 16; ++i)
        equal.layers.push_back({"layer", 1ms, 2ms, 100});
    CHECK(last_layers(plan_of(equal)) == std::vector<std::size_t>{1, 3, 7, 11, 13, 15});
    // One class holds everything, so nothing can be kept apart.
    CHECK(last_layers(plan_of(equal, 1)) == std::vector<std::size_t>{15});
}

TEST_CASE("an embedding that is needed first and is large has a class of its own", "[plan]") {
    const auto plan = plan_of(model("bert_base"));
    CHECK(plan[0].layers.last == 0);
    CHECK(plan.size() == 6);
}

TEST_CASE("every model in any number of classes obeys the rule", "[plan]") {
    const auto max = GENERATE(range<std::size_t>(1, 9));
    for (const BuiltinModel& builtin : builtin_models()) {
        INFO(builtin.name << " in " << max);
        check_rule(model(builtin.name), max);
    }
}

TEST_CASE("measured profiles obey the rule", "[plan][files]") {
    const std::filesystem::path folder(MERCURY_PROFILES);
    if (!std::filesystem::is_directory(folder)) {
        WARN("NOT TESTED: no profiles in " << folder << " (cmake -DMERCURY_PROFILES=FOLDER)");
        return;
    }
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
        if (file.path().extension() != ".csv")
            continue;
        INFO(file.path());
        const auto profile = load_profile(file.path());
        REQUIRE(profile);
        for (std::size_t max = 1; max <= 8; ++max)
            check_rule(profile.value(), max);
    }
}

TEST_CASE("a number of classes that makes no sense is refused by the plan as well", "[plan]") {
    const auto plan = plan_layers(model("vgg16"), 0, 0);
    REQUIRE_FALSE(plan);
    CHECK_THAT(plan.error().message, Catch::Matchers::Contains("1 to 32"));
}
