// SPDX-License-Identifier: MIT
//
// A whole experiment, from its file to its results, with all that may go wrong in between.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "plain_strategy.hpp"
#include "replay/case_progress.hpp"
#include "replay/cluster.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace mercury::replay::test;
using Catch::Matchers::Contains;
using Json = nlohmann::ordered_json;

namespace {

const std::string head = R"(
title = "t"
[network]
hosts = 2
qdisc = "pfifo limit 1000"
[job]
model = "model.csv"
[run]
iterations = 2
repeats = 2
)";

/// A folder with a model, where experiments run.
class Laboratory {
  public:
    Laboratory() {
        REQUIRE(virtual_time());
        REQUIRE(mkdtemp(folder_.data()) != nullptr);
        std::ofstream(folder_ + "/model.csv")
            << "idx,layer,fwd_ms,bwd_ms,param_bytes\n0,a,1,2,4000\n1,b,3,4,800000\n";
        options.json = folder_ + "/results.json";
    }
    Laboratory(const Laboratory&) = delete;
    Laboratory& operator=(const Laboratory&) = delete;
    ~Laboratory() { std::filesystem::remove_all(folder_); }

    Result<int> run(const std::string& text, int interrupt_fd = -1) const {
        const auto experiment = parse_experiment(head + text, "x.toml", {folder_, &make_plain});
        INFO((experiment ? "" : experiment.error().message));
        REQUIRE(experiment);
        return run_cluster(experiment.value(), options, &make_plain, interrupt_fd);
    }

    int status(const std::string& text, int interrupt_fd = -1) const {
        const auto outcome = run(text, interrupt_fd);
        INFO((outcome ? "" : outcome.error().message));
        REQUIRE(outcome);
        return outcome.value();
    }

    Json results() const {
        std::ifstream file(options.json);
        return Json::parse(file, nullptr, false);
    }

    /// By name.
    Json result(const std::string& name) const {
        const Json all = results();
        for (const Json& one : all.at("cases")) {
            if (one["name"] == name)
                return one;
        }
        return {};
    }

    std::size_t files() const {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder_))
            ++count;
        return count;
    }

    ClusterOptions options;

  private:
    std::string folder_ = "/tmp/mercury-guest.XXXXXX";
};

bool no_children() {
    return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
}

}  // namespace

TEST_CASE("an experiment leaves the results of all its cases", "[driver]") {
    const Laboratory lab;
    REQUIRE(lab.status("[[matrix.how]]\nname = \"one\"\njob.strategy = \"plain\"\n"
                       "[[matrix.how]]\nname = \"two\"\njob.strategy = \"plain mark={1,2}\"\n") ==
            0);
    const Json results = lab.results();
    CHECK(results["complete"] == true);
    CHECK(results["virtual_time"] == true);
    REQUIRE(results["cases"].size() == 3);
    CHECK(results["cases"][2]["name"] == "two, plain mark=2");
    for (const Json& one : results["cases"]) {
        const Json& job = one["jobs"]["job"];
        REQUIRE(job["iteration_ms"]["values"].size() == 2);
        CHECK(job["iterations_ms"][1].size() == 2);
        // 10 ms of compute, and the wire after the backward pass.
        CHECK(job["iteration_ms"]["median"] > 10.0);
        CHECK(job["iteration_ms"]["median"] < 12.0);
        CHECK(job["over_bound"] >= 1.0);
        CHECK(one["timeline"].contains("job"));
    }
    CHECK(lab.files() == 2);
    CHECK(no_children());
}

TEST_CASE("cases that fail in any way are told and the others run", "[driver]") {
    const Laboratory lab;
    const auto status = lab.status(
        "[[matrix.how]]\nname = \"f\"\n"
        "job.strategy = [\"plain fail={connect,push,crash,hang,destroy}\", \"plain\"]\n");
    CHECK(status == EXIT_FAILURE);
    const auto error = [&](const std::string& kind) {
        return lab.result("f, plain fail=" + kind)["error"].get<std::string>();
    };
    CHECK(error("connect") == "job: refuses to connect");
    CHECK_THAT(error("push"), Contains("job, worker ") && Contains("refuses to push"));
    CHECK_THAT(error("crash"), Contains("ended by signal 9"));
    CHECK_THAT(error("hang"), Contains("no worker makes progress: job, worker 0 waits for layer 0 "
                                       "(a) in iteration 0; job, worker 1 waits for layer 0"));
    CHECK_THAT(error("destroy"), Contains("after its work was done"));
    CHECK_FALSE(lab.result("f, plain").contains("error"));
    CHECK(lab.results()["complete"] == false);
    CHECK(no_children());
}

TEST_CASE("resume runs what is missing, failed or changed", "[driver]") {
    Laboratory lab;
    const std::string two =
        "[[matrix.how]]\nname = \"a\"\njob.strategy = \"plain\"\n"
        "[[matrix.how]]\nname = \"b\"\njob.strategy = \"plain ";
    REQUIRE(lab.status(two + "fail=push\"\n") == EXIT_FAILURE);
    const Json kept = lab.result("a");
    REQUIRE(kept.contains("jobs"));

    lab.options.resume = true;
    REQUIRE(lab.status(two + "mark=1\"\n") == 0);
    CHECK(lab.result("a") == kept);
    CHECK_FALSE(lab.result("b").contains("error"));
    CHECK(lab.results()["complete"] == true);

    // Nothing is left to do, and nothing changes.
    const Json all = lab.results();
    REQUIRE(lab.status(two + "mark=1\"\n") == 0);
    CHECK(lab.results() == all);

    // Other settings are another case.
    REQUIRE(lab.status(two + "mark=1\"\nnetwork.mtu = 9000\n") == 0);
    CHECK(lab.result("b")["settings"]["network"]["mtu"] == 9000);
    CHECK(lab.result("a") == kept);
}

TEST_CASE("selected cases run, the results of the others stay", "[driver]") {
    Laboratory lab;
    const std::string text = "[[matrix.how]]\nname = \"a\"\njob.strategy = \"plain mark={1,2}\"\n";
    REQUIRE(lab.status(text) == 0);
    const Json kept = lab.result("a, plain mark=1");
    REQUIRE(kept.contains("jobs"));
    lab.options.select = {"mark=2"};
    REQUIRE(lab.status(text) == 0);
    CHECK(lab.results()["cases"].size() == 2);
    CHECK(lab.result("a, plain mark=1") == kept);

    lab.options.select = {"mark=3"};
    const auto none = lab.run(text);
    REQUIRE_FALSE(none);
    CHECK_THAT(none.error().message, Contains("no case has \"mark=3\" in its name"));
}

TEST_CASE("a qdisc that tc does not know stops everything before it starts", "[driver]") {
    const Laboratory lab;
    const auto outcome = lab.run(
        "[[matrix.how]]\nname = \"a\"\njob.strategy = \"plain\"\n"
        "[[matrix.how]]\nname = \"b\"\njob.strategy = \"plain\"\n"
        "network.qdisc = \"nosuchqdisc\"\n");
    REQUIRE_FALSE(outcome);
    CHECK_THAT(outcome.error().message, Contains("case \"b\"") && Contains("nosuchqdisc"));
    CHECK(lab.files() == 1);
}

TEST_CASE("a signal keeps what is complete and leaves nothing running", "[driver]") {
    const auto signal = GENERATE(SIGINT, SIGTERM);
    sigset_t set;
    sigset_t before;
    sigemptyset(&set);
    sigaddset(&set, signal);
    REQUIRE(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    const Fd interrupt(signalfd(-1, &set, SFD_CLOEXEC));
    REQUIRE(interrupt);

    const Laboratory lab;
    // The second case waits for ever; a helper that waits less sends the signal.
    const pid_t self = getpid();
    const pid_t helper = fork();
    if (helper == 0) {
        std::this_thread::sleep_for(std::chrono::seconds(30));
        kill(self, signal);
        _exit(0);
    }
    const int status = lab.status(
        "[[matrix.how]]\nname = \"a\"\njob.strategy = \"plain\"\n"
        "[[matrix.how]]\nname = \"b\"\njob.strategy = \"plain fail=hang\"\n",
        interrupt.get());
    CHECK(status == 128 + signal);
    waitpid(helper, nullptr, 0);
    CHECK(no_children());
    CHECK(lab.results()["complete"] == false);
    CHECK(lab.results()["cases"].size() == 1);
    CHECK(lab.result("a").contains("jobs"));
    CHECK(lab.files() == 2);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
