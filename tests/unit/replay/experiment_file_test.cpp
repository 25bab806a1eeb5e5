// SPDX-License-Identifier: MIT
#include "replay/experiment_file.hpp"

#include <fstream>

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

class NoStrategy : public Strategy {
  public:
    Result<std::unique_ptr<Exchange>> connect(const Job&, const Network&) override {
        return Error{"is not for use"};
    }
};

/// Knows "good" with the parameter p.
Result<std::unique_ptr<Strategy>> make(const StrategySpec& spec) {
    if (spec.name != "good")
        return Error{fmt::format("strategy \"{}\" is none of good", spec.name)};
    for (const auto& [key, value] : spec.parameters) {
        if (key != "p")
            return Error{fmt::format("strategy good has no parameter \"{}\"", key)};
    }
    return std::unique_ptr<Strategy>(std::make_unique<NoStrategy>());
}

Result<ClusterExperiment> parse(const std::string& text) {
    return parse_experiment(text, "dir/x.toml", {{}, &make});
}

ClusterExperiment good(const std::string& text) {
    auto experiment = parse(text);
    INFO((experiment ? "" : experiment.error().message));
    REQUIRE(experiment);
    return std::move(experiment).value();
}

std::string wrong(const std::string& text) {
    const auto experiment = parse(text);
    REQUIRE_FALSE(experiment);
    return experiment.error().message;
}

const std::string least = "title = \"t\"\n[job]\nmodel = \"alexnet\"\nstrategy = \"good\"\n";

std::vector<std::string> names(const ClusterExperiment& experiment) {
    std::vector<std::string> names;
    for (const ClusterCase& one : experiment.cases)
        names.push_back(one.name());
    return names;
}

}  // namespace

TEST_CASE("the least experiment has one case with the defaults", "[experiment-file]") {
    const auto experiment = good(least);
    CHECK(experiment.name == "x");
    CHECK(experiment.title == "t");
    REQUIRE(experiment.cases.size() == 1);
    const ClusterCase& one = experiment.cases[0];
    CHECK(one.name() == "the only case");
    CHECK(one.network.hosts == 8);
    CHECK(one.network.rate == Rate{10'000'000'000});
    CHECK(one.network.qdisc == std::vector<std::string>{"mercury"});
    REQUIRE(one.network.ports);
    CHECK(*one.network.ports == SwitchSettings{2'000'000, 1});
    REQUIRE(one.jobs.size() == 1);
    CHECK(one.jobs[0].hosts.workers.size() == 8);
    CHECK(one.jobs[0].hosts.workers == one.jobs[0].hosts.servers);
    CHECK(one.jobs[0].profile.bytes() > 200'000'000);
    CHECK(one.run.repeats == 3);
    CHECK(one.background.empty());
}

TEST_CASE("cases are the product of lists and of the matrix", "[experiment-file]") {
    const auto experiment = good(R"(
title = "t"
[job]
model = ["alexnet", "vgg16"]
[network]
hosts = 4
[report]
compare = "how"
baseline = "plain"
x = "model"
[[matrix.how]]
name = "plain"
job.strategy = "good"
network.qdisc = "pfifo limit 1000"
[[matrix.how]]
name = "good"
job.strategy = "good p={1,2}"
)");
    CHECK(names(experiment) == std::vector<std::string>{"alexnet, plain", "alexnet, good, p=1",
                                                        "alexnet, good, p=2", "vgg16, plain",
                                                        "vgg16, good, p=1", "vgg16, good, p=2"});
    const ClusterCase& swept = experiment.cases[2];
    CHECK(swept.labels ==
          std::vector<std::pair<std::string, std::string>>{{"model", "alexnet"}, {"how", "good"}});
    CHECK(swept.variant == "p=2");
    CHECK(swept.jobs[0].spec == StrategySpec{"good", {{"p", "2"}}});
    CHECK(swept.network.qdisc == std::vector<std::string>{"mercury"});
    CHECK(experiment.cases[3].network.qdisc == std::vector<std::string>{"pfifo limit 1000"});
    REQUIRE(experiment.dimensions.size() == 2);
    CHECK(experiment.dimensions[1].second == std::vector<std::string>{"plain", "good"});
    CHECK(experiment.compare == "how");
}

TEST_CASE("an entry of the matrix may add a job, flows and changes of rate", "[experiment-file]") {
    const auto experiment = good(R"(
title = "t"
[network]
hosts = 9
[job]
model = "alexnet"
strategy = "good"
hosts = "0-7"
[[matrix.scenario]]
name = "alone"
[[matrix.scenario]]
name = "upload"
background.checkpoint = { from = 0, to = 8, connections = 4 }
background.bulk = { from = "0-2,5", to = "next" }
rate_changes.dip = { host = 3, at = "1s", for = "2s", factor = 0.5 }
[[matrix.scenario]]
name = "two"
jobs.first = {}
jobs.second = { model = "vgg16", placement = "dedicated", hosts = "0-3" }
)");
    REQUIRE(experiment.cases.size() == 3);
    CHECK(experiment.cases[0].background.empty());

    const ClusterCase& upload = experiment.cases[1];
    REQUIRE(upload.background.size() == 2);
    using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;
    CHECK(upload.background[0].pairs == Pairs{{0, 8}});
    CHECK(upload.background[0].connections == 4);
    CHECK(upload.background[1].pairs == Pairs{{0, 1}, {1, 2}, {2, 5}, {5, 0}});
    REQUIRE(upload.rate_changes.size() == 1);
    CHECK(upload.rate_changes[0].length == 2s);

    const ClusterCase& two = experiment.cases[2];
    REQUIRE(two.jobs.size() == 2);
    CHECK(two.jobs[0].name == "first");
    CHECK(two.jobs[0].model == "alexnet");
    CHECK(two.jobs[0].hosts.workers.size() == 8);
    CHECK(two.jobs[1].model == "vgg16");
    CHECK(two.jobs[1].number == 1);
    CHECK(two.jobs[1].strategy == "good");
    CHECK(two.jobs[1].hosts.workers == std::vector<std::size_t>{0, 1});
    CHECK(two.jobs[1].hosts.servers == std::vector<std::size_t>{2, 3});
}

TEST_CASE("scales change bytes and times as they say", "[experiment-file]") {
    const auto full = good(least).cases[0].jobs[0].profile;
    const auto half = good(least + "scale = 0.5\n").cases[0].jobs[0].profile;
    CHECK(static_cast<double>(half.bytes()) ==
          Approx(static_cast<double>(full.bytes()) / 2).epsilon(1e-6));
    CHECK(to_ms(half.compute()) == Approx(to_ms(full.compute()) / 2));
    const auto sized = good(least + "bytes = \"1mb\"\n").cases[0].jobs[0].profile;
    CHECK(static_cast<double>(sized.bytes()) == Approx(1 << 20).epsilon(1e-4));
    CHECK(to_ms(sized.compute()) / to_ms(full.compute()) ==
          Approx(static_cast<double>(1 << 20) / static_cast<double>(full.bytes())).epsilon(1e-3));
    const auto slow = good(least + "compute_scale = 3\n").cases[0].jobs[0].profile;
    CHECK(slow.bytes() == full.bytes());
    CHECK(to_ms(slow.compute()) == Approx(to_ms(full.compute()) * 3));
    const auto tiny = good(least + "scale = 1e-6\n").cases[0].jobs[0].profile;
    for (const Layer& layer : tiny.layers) {
        CHECK(layer.bytes >= 4);
        CHECK(layer.bytes % 4 == 0);
    }
}

TEST_CASE("a ratio of wire to compute is what the bound has", "[experiment-file]") {
    const double ratio = GENERATE(0.25, 1.0, 4.0);
    const std::string placement = GENERATE("colocated", "dedicated");
    const auto one =
        good(least + fmt::format("scale = 0.1\nwire_to_compute = {}\nplacement = \"{}\"\n", ratio,
                                 placement))
            .cases[0];
    const Bound bound = bound_of(one.jobs[0], one.network);
    CHECK(to_ms(bound.wire) / to_ms(bound.compute) == Approx(ratio).epsilon(1e-4));
}

TEST_CASE("a qdisc may be a name for several lines", "[experiment-file]") {
    const auto experiment = good(least + R"(
[network]
qdisc = ["one class", "fq"]
[qdiscs]
"one class" = ["prio bands 2", "filter parent 10: basic match meta(nf_mark eq 0) flowid 10:2"]
)");
    REQUIRE(experiment.cases.size() == 2);
    CHECK(experiment.cases[0].network.qdisc.size() == 2);
    CHECK(experiment.cases[0].name() == "one class");
    CHECK(experiment.cases[1].network.qdisc == std::vector<std::string>{"fq"});
}

TEST_CASE("what is wrong is told with file, line, key and what is allowed", "[experiment-file]") {
    const auto [text, message] = GENERATE(table<std::string, std::string>({
        {"[network]\nhost = 3\n",
         "dir/x.toml:6: network.host: there is no such setting here; there are delay, hosts, mtu, "
         "qdisc, rate, switch"},
        {"[network]\nhosts = 65\n", "dir/x.toml:6: network.hosts: must be 2 to 64, not 65"},
        {"[network]\nhosts = \"8\"\n",
         "dir/x.toml:6: network.hosts: must be a whole number, not a text"},
        {"[network]\nrate = \"fast\"\n", "dir/x.toml:6: network.rate: "},
        {"[network]\nqdisc = \"pfifo\"\n", "needs a limit, as in \"pfifo limit 1000\""},
        {"[network]\nswitch = { queues = 8, buffer = \"100kb\" }\n", "is too small"},
        {"placement = \"here\"\n", "dir/x.toml:5: job.placement: must be \"colocated\""},
        {"placement = \"dedicated\"\nhosts = \"0-2\"\n", "3 hosts have no halves"},
        {"hosts = \"0-8\"\n", "there is no host 8: the network has hosts 0 to 7"},
        {"hosts = \"0,0\"\n", "host 0 is named twice"},
        {"hosts = \"3-1\"\n", "\"3-1\" is neither a host nor a range"},
        {"hosts = \"\"\n", "is neither a host nor a range"},
        {"hosts = 1\n", "needs two hosts"},
        {"wire_to_compute = 1\ncompute_scale = 2\n", "give one of them"},
        {"scale = 1\nbytes = \"1mb\"\n", "job.bytes: says what scale says, too"},
        {"bytes = \"0\"\n", "job.bytes: must be more than 0"},
        {"bytes = \"much\"\n", "size \"much\" is not a whole number of bytes"},
        {"batch = 0\n", "job.batch: must be 1 to 1000000, not 0"},
        {"[run]\nrepeats = 0\n", "run.repeats: must be 1 to 1000, not 0"},
        {"[background.a]\nfrom = 1\nto = 1\n", "host 1 would send to itself"},
        {"[background.a]\nfrom = \"0-2\"\nto = \"3-4\"\n", "must be one host below 8, or \"next\""},
        {"[background.a]\nto = 1\n", "background.a.from: is missing"},
        {"[rate_changes.a]\nhost = 8\nfor = \"1s\"\nfactor = 0.5\n", "must be 0 to 7, not 8"},
        {"[rate_changes.a]\nhost = 1\nfor = \"1s\"\nfactor = 0.5\n"
         "[rate_changes.b]\nhost = 1\nat = \"0.5s\"\nfor = \"1s\"\nfactor = 0.5\n",
         "rate_changes.b.at: overlaps rate_changes.a"},
        {"[report]\ncompare = \"how\"\n", "\"how\" is none of the dimensions"},
        {"[matrix]\nhow = 3\n", "matrix.how: must be a list of tables: [[matrix.how]]"},
        {"[[matrix.how]]\njob.strategy = \"good\"\n", "matrix.how.name: is missing"},
        {"[[matrix.how]]\nname = \"a\"\nnetwrk.mtu = 9000\n",
         "matrix.how.netwrk: there is no such setting here"},
        {"[[matrix.how]]\nname = \"a\"\n[[matrix.how]]\nname = \"a\"\n",
         "two entries are called \"a\""},
        {"[other]\n", "other: there is no such setting here"},
    }));
    CAPTURE(text);
    CHECK_THAT(wrong(least + text), Contains(message));
}

TEST_CASE("so are wrong models and strategies", "[experiment-file]") {
    const auto with = [](const std::string& model, const std::string& strategy) {
        return fmt::format("title = \"t\"\n[job]\nmodel = {}\nstrategy = {}\n", model, strategy);
    };
    CHECK_THAT(wrong(with("\"no-such\"", "\"good\"")),
               Contains("dir/x.toml:3: job.model: ") && Contains("alexnet"));
    CHECK_THAT(wrong(with("\"alexnet\"", "\"bad\"")),
               Equals("dir/x.toml:4: job.strategy: strategy \"bad\" is none of good"));
    CHECK_THAT(wrong(with("\"alexnet\"", "\"good q=1\"")), Contains("no parameter \"q\""));
    CHECK_THAT(wrong(with("\"alexnet\"", "\"good p\"")), Contains("\"p\" in \"good p\""));
    CHECK_THAT(wrong(with("\"alexnet\"", "\"good p=1 p=2\"")), Contains("p is given twice"));
    CHECK_THAT(wrong(with("\"alexnet\"", "\"\"")), Contains("is not a strategy"));
    CHECK_THAT(wrong("[job]\n"), Contains("title: is missing") && Contains("model: is missing") &&
                                     Contains("strategy: is missing"));
    // One wrong value in a list spoils nothing else.
    const auto message = wrong(with("[\"alexnet\", \"no-such\", \"vgg16\"]", "\"good\""));
    CHECK_THAT(message, Contains("no-such"));
    CHECK(std::count(message.begin(), message.end(), '\n') == 0);
}

TEST_CASE("a missing file is an error with its name", "[experiment-file]") {
    const auto missing = load_experiment("/no/such/file.toml", {{}, &make});
    REQUIRE_FALSE(missing);
    CHECK_THAT(missing.error().message, Contains("/no/such/file.toml"));
    const auto folder = load_experiment("/", {{}, &make});
    REQUIRE_FALSE(folder);
    CHECK_THAT(folder.error().message, Contains("directory"));
}

TEST_CASE("profile files are looked up in their folder", "[experiment-file]") {
    char folder[] = "/tmp/mercury-unit.XXXXXX";
    REQUIRE(mkdtemp(folder) != nullptr);
    const std::filesystem::path file = std::filesystem::path(folder) / "mine.csv";
    std::ofstream(file) << "idx,layer,fwd_ms,bwd_ms,param_bytes\n0,a,1,2,4000\n";
    const std::string text = "title = \"t\"\n[job]\nmodel = \"mine.csv\"\nstrategy = \"good\"\n";
    const auto found = parse_experiment(text, "x.toml", {folder, &make});
    const auto lost = parse_experiment(text, "x.toml", {{}, &make});
    std::filesystem::remove_all(folder);
    REQUIRE(found);
    CHECK(found.value().cases[0].jobs[0].profile.bytes() == 4000);
    REQUIRE_FALSE(lost);
    CHECK_THAT(lost.error().message, Contains("mine.csv"));
}

TEST_CASE("settings tell whether two cases are the same", "[experiment-file]") {
    const auto settings = [](const std::string& more) {
        return settings_json(good(least + more).cases[0]).dump();
    };
    CHECK(settings("") == settings("compute_scale = 1\n"));
    for (const std::string more :
         {"batch = 7\n", "hosts = \"0-3\"\n", "scale = 0.5\n", "compute_scale = 2\n",
          "placement = \"dedicated\"\n", "[network]\ndelay = \"1us\"\n", "[network]\nmtu = 9000\n",
          "[network]\nswitch.queues = 2\n", "[run]\niterations = 9\n",
          "[background.a]\nfrom = 0\nto = 1\n",
          "[rate_changes.a]\nhost = 0\nfor = \"1s\"\nfactor = 0.5\n"}) {
        CAPTURE(more);
        CHECK(settings("") != settings(more));
    }
}
