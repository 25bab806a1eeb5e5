// SPDX-License-Identifier: MIT
#include "replay/cluster_results.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <stdlib.h>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Json = nlohmann::ordered_json;

namespace {

ClusterCase made_case(const std::string& label) {
    ClusterCase one;
    one.labels = {{"strategy", label}};
    one.network.hosts = 4;
    one.network.ports = SwitchSettings{};
    CaseJob job;
    job.name = "job";
    job.model = "made";
    job.profile = {"made", "by hand", {{"a", 10ms, 20ms, 4'000'000}, {"b", 5ms, 5ms, 400}}};
    job.placement = "colocated";
    job.hosts = {{0, 1, 2, 3}, {0, 1, 2, 3}};
    job.strategy = "fifo";
    job.spec = {"fifo", {}};
    one.jobs.push_back(job);
    one.background.push_back({"bulk", {{0, 1}, {1, 2}}, 3});
    return one;
}

Json made_run(double first, double second, double retransmits) {
    return {{"jobs", {{"job", {{"iterations_ms", {first, second}}, {"timeline", {{"rank", 0}}}}}}},
            {"background", {{"bulk", 2.5e9}}},
            {"retransmits", retransmits},
            {"timeouts", 0},
            {"drops", {{"host 0", 0}, {"port 1", 3}, {"port 2", 4}}}};
}

ClusterExperiment made_experiment() {
    ClusterExperiment experiment;
    experiment.name = "made";
    experiment.title = "Made up";
    experiment.compare = "strategy";
    experiment.dimensions = {{"strategy", {"x", "y"}}};
    experiment.cases = {made_case("x"), made_case("y")};
    return experiment;
}

class Folder {
  public:
    Folder() { REQUIRE(mkdtemp(name_.data()) != nullptr); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(name_); }
    std::string file(const std::string& name) const { return name_ + "/" + name; }
    std::size_t count() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(name_),
                                                      std::filesystem::directory_iterator()));
    }

  private:
    std::string name_ = "/tmp/mercury-unit.XXXXXX";
};

std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a case's result is the median of its repeats", "[cluster-results]") {
    const Json result = case_result(
        made_case("x"), {made_run(50, 70, 5), made_run(40, 40, 1), made_run(90, 110, 9)}, 12.5);
    CHECK(result["name"] == "x");
    CHECK(result["labels"] == Json{{"strategy", "x"}});
    const Json& job = result["jobs"]["job"];
    CHECK(job["iteration_ms"] ==
          Json{{"median", 60.0}, {"min", 40.0}, {"max", 100.0}, {"values", {60.0, 40.0, 100.0}}});
    CHECK(job["iterations_ms"].size() == 3);
    CHECK(job["bound"]["compute_ms"] == 40.0);
    CHECK(job["over_bound"] == 1.5);
    CHECK(result["background"]["bulk"]["flows"] == 6);
    CHECK(result["background"]["bulk"]["goodput_gbit"]["median"] == 2.5);
    CHECK(result["retransmits"]["median"] == 5.0);
    CHECK(result["drops"]["median"] == 7.0);
    CHECK(result["drops"]["by_place"] == Json{{"port 1", 9}, {"port 2", 12}});
    CHECK(result["timeline"]["job"]["rank"] == 0);
    CHECK(result["real_seconds"] == 12.5);
    CHECK(describe_case(result) == "60.0 ms (40.0 to 100.0), 1.500 of the bound; bulk 2.50 Gbit/s");
}

TEST_CASE("the median of two repeats lies between them", "[cluster-results]") {
    const Json result = case_result(made_case("x"), {made_run(50, 70, 5), made_run(40, 40, 1)}, 1);
    CHECK(result["jobs"]["job"]["iteration_ms"]["median"] == 50.0);
}

TEST_CASE("results are complete when every case has one that did not fail", "[cluster-results]") {
    const auto experiment = made_experiment();
    const Json one = case_result(experiment.cases[0], {made_run(50, 70, 5)}, 1);
    const Json two = case_result(experiment.cases[1], {made_run(50, 70, 5)}, 1);
    const Json none = experiment_result(experiment, {{}, {}}, true);
    CHECK(none["complete"] == false);
    CHECK(none["cases"] == Json::array());
    CHECK(none["report"] == Json{{"compare", "strategy"}});
    CHECK(none["dimensions"] == Json{{"strategy", {"x", "y"}}});
    CHECK(experiment_result(experiment, {one, {}}, true)["complete"] == false);
    CHECK(experiment_result(experiment, {one, two}, true)["complete"] == true);
    const Json failed = case_failure(experiment.cases[1], "it broke");
    CHECK(experiment_result(experiment, {one, failed}, true)["complete"] == false);
    CHECK(describe_case(failed) == "failed: it broke");
}

TEST_CASE("earlier results are taken up if their settings are the same", "[cluster-results]") {
    const Folder folder;
    const std::string path = folder.file("made.json");
    auto experiment = made_experiment();
    const Json one = case_result(experiment.cases[0], {made_run(50, 70, 5)}, 1);
    const Json failed = case_failure(experiment.cases[1], "it broke");

    const auto nothing = earlier_results(experiment, path);
    REQUIRE(nothing);
    CHECK(nothing.value() == std::vector<Json>{{}, {}});

    REQUIRE(write_atomically(path, experiment_result(experiment, {one, failed}, true).dump()));
    const auto same = earlier_results(experiment, path);
    REQUIRE(same);
    CHECK(same.value()[0] == one);
    CHECK(same.value()[1].is_null());

    experiment.cases[0].network.mtu = 9000;
    const auto other = earlier_results(experiment, path);
    REQUIRE(other);
    CHECK(other.value()[0].is_null());
}

TEST_CASE("a file that is something else is not taken for results", "[cluster-results]") {
    const Folder folder;
    const std::string path = folder.file("made.json");
    for (const std::string text : {"", "{", "[]", "{\"cases\": 3}"}) {
        std::ofstream(path) << text;
        const auto earlier = earlier_results(made_experiment(), path);
        REQUIRE_FALSE(earlier);
        CHECK_THAT(earlier.error().message, Contains(path));
    }
}

TEST_CASE("a file is replaced as a whole or not at all", "[cluster-results]") {
    const Folder folder;
    const std::string path = folder.file("made.json");
    REQUIRE(write_atomically(path, "old"));
    REQUIRE(write_atomically(path, "new"));
    CHECK(content(path) == "new");
    CHECK(folder.count() == 1);
    const auto lost = write_atomically(folder.file("no/such/folder"), "x");
    REQUIRE_FALSE(lost);
    CHECK_THAT(lost.error().message, Contains("no/such/folder"));
}
