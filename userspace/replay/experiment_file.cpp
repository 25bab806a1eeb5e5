// SPDX-License-Identifier: MIT
#include "replay/experiment_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/units.hpp"
#include "config/settings.hpp"
#include "replay/experiment_matrix.hpp"
#include "replay/strategy_parameters.hpp"

namespace mercury::replay {
namespace {

constexpr std::int64_t iterations_max = 100'000;
constexpr std::int64_t repeats_max = 1000;
constexpr std::int64_t connections_max = 256;
constexpr double scale_min = 1e-6;
constexpr double scale_max = 1e6;
/// Summation works on elements of four bytes.
constexpr std::uint64_t element_bytes = 4;
constexpr std::size_t jobs_max = 30;

constexpr const char* needs_time = "a time such as 25us, 1.5ms or 2s";

// One case --------------------------------------------------------------------------------------

/// The value of KEY as PARSE reads it, or OTHERWISE.
template <typename T>
T parsed(SettingReader& reader, std::string_view key, T otherwise,
         Result<T> (*parse)(std::string_view)) {
    const std::string text = reader.text(key, "");  // makes the key known, given or not
    if (!reader.has(key))
        return otherwise;
    const auto value = parse(text);
    if (value)
        return value.value();
    reader.refuse(key, value.error().message);
    return otherwise;
}

class CaseReader {
  public:
    CaseReader(const SettingTable& settings, const ExperimentOptions& options, Problems& problems)
        : root_(settings, "", 1, problems), options_(options) {}

    ClusterCase read() {
        read_qdiscs();
        read_network();
        read_jobs();
        read_background();
        read_rate_changes();
        read_run();
        return std::move(case_);
    }

  private:
    void read_qdiscs() {
        auto table = root_.table("qdiscs");
        for (const auto& name : root_.keys_of("qdiscs")) {
            auto lines = table.texts(name);
            if (lines.empty())
                table.refuse(name, "must be the words for tc, or a list of lines");
            qdiscs_.emplace_back(name, std::move(lines));
        }
    }

    void read_network() {
        auto reader = root_.table("network");
        NetworkSettings& network = case_.network;
        network.hosts =
            static_cast<std::size_t>(reader.whole("hosts", 8, static_cast<std::int64_t>(hosts_min),
                                                  static_cast<std::int64_t>(hosts_max)));
        network.rate = parsed(reader, "rate", network.rate, &parse_rate);
        network.delay = parsed(reader, "delay", network.delay, &parse_time);
        network.mtu = static_cast<unsigned>(
            reader.whole("mtu", network.mtu, std::int64_t{mtu_min}, std::int64_t{mtu_max}));
        network.qdisc = qdisc_of(reader.text("qdisc", "mercury"));
        read_switch(reader);
        if (auto good = check(network); !good)
            reader.refuse("", good.error().message);
        reader.finish();
    }

    std::vector<std::string> qdisc_of(const std::string& name_or_words) const {
        for (const auto& [name, lines] : qdiscs_) {
            if (name == name_or_words)
                return lines;
        }
        return {name_or_words};
    }

    void read_switch(SettingReader& network) {
        auto reader = network.table("switch");
        SwitchSettings ports;
        ports.buffer = parsed(reader, "buffer", ports.buffer, &parse_bytes);
        ports.queues = static_cast<unsigned>(
            reader.whole("queues", ports.queues, 1, std::int64_t{switch_queues_max}));
        reader.finish();
        case_.network.ports = ports;
    }

    void read_jobs() {
        auto common = root_.table("job");
        const auto jobs = root_.tables("jobs");
        if (jobs.empty()) {
            case_.jobs.push_back(read_job("job", common));
            return;
        }
        if (jobs.size() > jobs_max)
            root_.refuse("jobs", fmt::format("there may be {} of them at most", jobs_max));
        for (const auto& [name, own] : jobs) {
            merged_.push_back(std::make_unique<SettingTable>(common.settings()));
            merge(*merged_.back(), own.settings());
            auto reader = own.with(*merged_.back());
            case_.jobs.push_back(read_job(name, reader));
        }
    }

    CaseJob read_job(const std::string& name, SettingReader& reader) {
        CaseJob job;
        job.name = name;
        job.number = static_cast<unsigned>(case_.jobs.size());
        reader.require("model", "a built-in model or a profile file");
        reader.require("strategy", "how gradients travel, \"fifo\" for example");
        read_placement(reader, job);
        read_strategy(reader, job);
        read_model(reader, job);
        reader.finish();
        return job;
    }

    void read_placement(SettingReader& reader, CaseJob& job) {
        const auto hosts =
            read_hosts(reader, "hosts", fmt::format("0-{}", case_.network.hosts - 1));
        job.placement = reader.text("placement", "colocated");
        if (job.placement == "colocated") {
            job.hosts = {hosts, hosts};
            if (hosts.size() < 2)
                reader.refuse("hosts", "a job needs two hosts at least");
        } else if (job.placement == "dedicated") {
            const auto half = static_cast<std::ptrdiff_t>(hosts.size() / 2);
            job.hosts = {{hosts.begin(), hosts.begin() + half},
                         {hosts.begin() + half, hosts.end()}};
            if (hosts.size() % 2 != 0 || hosts.size() < 2) {
                reader.refuse("hosts", fmt::format("half of a dedicated job's hosts are workers, "
                                                   "half are servers: {} hosts have no halves",
                                                   hosts.size()));
            }
        } else {
            reader.refuse("placement",
                          fmt::format("must be \"colocated\" (each host is a worker and a server) "
                                      "or \"dedicated\" (the first half workers, the second half "
                                      "servers), not \"{}\"",
                                      job.placement));
        }
    }

    std::vector<std::size_t> read_hosts(SettingReader& reader, std::string_view key,
                                        const std::string& otherwise) const {
        const auto hosts = parse_hosts(reader.word(key, otherwise), case_.network.hosts);
        if (hosts)
            return hosts.value();
        reader.refuse(key, hosts.error().message);
        return {0};
    }

    void read_strategy(SettingReader& reader, CaseJob& job) {
        job.strategy = reader.text("strategy", "");
        const auto spec = parse_strategy(job.strategy);
        if (!spec) {
            reader.refuse("strategy", spec.error().message);
            return;
        }
        job.spec = spec.value();
        if (const auto made = options_.make_strategy(job.spec); !made && reader.has("strategy"))
            reader.refuse("strategy", made.error().message);
    }

    void read_model(SettingReader& reader, CaseJob& job) {
        ComputeRate rate;
        if (reader.has("tflops"))
            rate.tflops = reader.number("tflops", 1, scale_min, scale_max);
        if (reader.has("batch"))
            rate.batch = static_cast<std::uint64_t>(reader.whole("batch", 1, 1, 1'000'000));
        double scale = reader.number("scale", 1, scale_min, scale_max);
        const auto bytes = parsed(reader, "bytes", std::uint64_t{0}, &parse_bytes);
        if (reader.has("bytes") && bytes == 0)
            reader.refuse("bytes", "must be more than 0");
        if (reader.has("scale") && reader.has("bytes"))
            reader.refuse("bytes", "says what scale says, too: give one of them");
        double compute_scale = reader.number("compute_scale", 1, scale_min, scale_max);
        const double ratio = reader.number("wire_to_compute", 0, scale_min, scale_max);
        if (reader.has("compute_scale") && reader.has("wire_to_compute"))
            reader.refuse("wire_to_compute", "says what compute_scale says, too: give one of them");

        job.model = reader.text("model", "");
        auto profile = load_model(job.model, rate);
        if (!profile) {
            if (reader.has("model"))
                reader.refuse("model", profile.error().message);
            return;
        }
        job.profile = std::move(profile).value();
        if (bytes > 0)
            scale = static_cast<double>(bytes) / static_cast<double>(job.profile.bytes());
        scale_profile(job.profile, scale, scale);
        if (reader.has("wire_to_compute"))
            compute_scale = scale_for_ratio(job, ratio, reader);
        scale_profile(job.profile, 1, compute_scale);
    }

    Result<Profile> load_model(const std::string& model, const ComputeRate& rate) const {
        const auto in_folder = options_.profiles / model;
        std::error_code ignored;
        if (!model.empty() && !options_.profiles.empty() &&
            std::filesystem::is_regular_file(in_folder, ignored))
            return load_profile(in_folder);
        return model_or_file(model, rate);
    }

    double scale_for_ratio(const CaseJob& job, double ratio, SettingReader& reader) const {
        const Bound bound = bound_of(job, case_.network);
        if (bound.compute.count() == 0) {
            reader.refuse("wire_to_compute", "this model computes nothing");
            return 1;
        }
        return to_ms(bound.wire) / (ratio * to_ms(bound.compute));
    }

    static void scale_profile(Profile& profile, double bytes, double compute) {
        const auto scaled = [&](std::chrono::nanoseconds time) {
            return std::chrono::nanoseconds(
                std::llround(static_cast<double>(time.count()) * compute));
        };
        for (Layer& layer : profile.layers) {
            layer.forward = scaled(layer.forward);
            layer.backward = scaled(layer.backward);
            if (bytes == 1)
                continue;
            const auto elements =
                std::llround(static_cast<double>(layer.bytes) * bytes / element_bytes);
            layer.bytes = static_cast<std::uint64_t>(std::max(elements, 1LL)) * element_bytes;
        }
    }

    void read_background() {
        for (auto& [name, reader] : root_.tables("background")) {
            BulkFlows flows{name, {}, 1};
            reader.require("from", "the sending hosts, such as \"0-7\"");
            reader.require("to", "the receiving host, or \"next\" for the next one of the senders");
            const auto from = read_hosts(reader, "from", "0");
            read_pairs(reader, from, flows);
            flows.connections =
                static_cast<std::size_t>(reader.whole("connections", 1, 1, connections_max));
            reader.finish();
            case_.background.push_back(std::move(flows));
        }
    }

    void read_pairs(SettingReader& reader, const std::vector<std::size_t>& from,
                    BulkFlows& flows) const {
        const std::string to = reader.word("to", "next");
        if (to == "next") {
            for (std::size_t i = 0; i < from.size(); ++i)
                flows.pairs.emplace_back(from[i], from[(i + 1) % from.size()]);
        } else {
            const auto receivers = parse_hosts(to, case_.network.hosts);
            if (!receivers || receivers.value().size() != 1) {
                reader.refuse("to",
                              fmt::format("must be one host below {}, or \"next\", not \"{}\"",
                                          case_.network.hosts, to));
                return;
            }
            for (const std::size_t sender : from)
                flows.pairs.emplace_back(sender, receivers.value()[0]);
        }
        for (const auto& [sender, receiver] : flows.pairs) {
            if (sender == receiver && reader.has("from")) {
                reader.refuse("to", fmt::format("host {} would send to itself", sender));
                return;
            }
        }
    }

    void read_rate_changes() {
        for (auto& [name, reader] : root_.tables("rate_changes")) {
            RateChange change{name, 0, {}, {}, 1};
            reader.require("host", "whose link it is");
            reader.require("for", needs_time);
            reader.require("factor", "what is left of the rate, such as 0.5");
            change.host = static_cast<std::size_t>(
                reader.whole("host", 0, 0, static_cast<std::int64_t>(case_.network.hosts) - 1));
            change.at = parsed(reader, "at", change.at, &parse_time);
            change.length = parsed(reader, "for", change.length, &parse_time);
            change.factor = reader.number("factor", 1, 0.001, 1000);
            reader.finish();
            check_overlap(change, reader);
            case_.rate_changes.push_back(change);
        }
    }

    void check_overlap(const RateChange& change, SettingReader& reader) const {
        for (const RateChange& other : case_.rate_changes) {
            if (other.host == change.host && other.at < change.at + change.length &&
                change.at < other.at + other.length)
                reader.refuse("at",
                              fmt::format("overlaps rate_changes.{} of the same host", other.name));
        }
    }

    void read_run() {
        auto reader = root_.table("run");
        const auto count = [&](std::string_view key, std::size_t otherwise, std::int64_t min,
                               std::int64_t max) {
            return static_cast<std::size_t>(
                reader.whole(key, static_cast<std::int64_t>(otherwise), min, max));
        };
        RunSettings& run = case_.run;
        run.warm_up = count("warm_up", run.warm_up, 0, iterations_max);
        run.iterations = count("iterations", run.iterations, 1, iterations_max);
        run.repeats = count("repeats", run.repeats, 1, repeats_max);
        reader.finish();
    }

    SettingReader root_;
    const ExperimentOptions& options_;
    ClusterCase case_;
    std::vector<std::pair<std::string, std::vector<std::string>>> qdiscs_;
    std::vector<std::unique_ptr<SettingTable>> merged_;  // what the jobs' readers read
};

// The file --------------------------------------------------------------------------------------

void add_dimensions(const Combination& combination, ClusterExperiment& experiment) {
    for (const auto& [dimension, label] : combination.labels) {
        auto& all = experiment.dimensions;
        auto found =
            std::find_if(all.begin(), all.end(),
                         [&, &name = dimension](const auto& known) { return known.first == name; });
        if (found == all.end())
            found = all.insert(all.end(), {dimension, {}});
        if (std::find(found->second.begin(), found->second.end(), label) == found->second.end())
            found->second.push_back(label);
    }
}

void read_report(SettingReader root, ClusterExperiment& experiment) {
    auto reader = root.table("report");
    const auto labels_of = [&](const std::string& dimension) {
        for (const auto& [name, labels] : experiment.dimensions) {
            if (name == dimension)
                return labels;
        }
        return std::vector<std::string>{};
    };
    const auto check_dimension = [&](std::string_view key, const std::string& dimension) {
        std::vector<std::string> names;
        for (const auto& [name, labels] : experiment.dimensions)
            names.push_back(name);
        if (!dimension.empty() && labels_of(dimension).empty()) {
            reader.refuse(key, fmt::format("\"{}\" is none of the dimensions: {}", dimension,
                                           fmt::join(names, ", ")));
        }
    };
    experiment.compare = reader.text("compare", "");
    check_dimension("compare", experiment.compare);
    experiment.x = reader.text("x", "");
    check_dimension("x", experiment.x);
    experiment.baseline = reader.text("baseline", "");
    const auto labels = labels_of(experiment.compare);
    if (!experiment.baseline.empty() && (!labels.empty() || experiment.compare.empty()) &&
        std::find(labels.begin(), labels.end(), experiment.baseline) == labels.end()) {
        reader.refuse("baseline", fmt::format("\"{}\" is none of the values of compare: {}",
                                              experiment.baseline, fmt::join(labels, ", ")));
    }
    reader.finish();
}

void check_names(const std::vector<ClusterCase>& cases, Problems& problems) {
    std::set<std::string> names;
    for (const ClusterCase& one : cases) {
        if (!names.insert(one.name()).second)
            problems.add(1, "", fmt::format("two cases are called \"{}\"", one.name()));
    }
}

/// By count or from a to b.
Result<std::pair<std::size_t, std::size_t>> parse_range(std::string_view text) {
    std::size_t first = 0;
    const char* const end = text.data() + text.size();
    auto [at, failure] = std::from_chars(text.data(), end, first);
    std::size_t last = first;
    if (failure == std::errc{} && at != end && *at == '-')
        std::tie(at, failure) = [&] {
            const auto parsed_last = std::from_chars(at + 1, end, last);
            return std::pair{parsed_last.ptr, parsed_last.ec};
        }();
    if (failure != std::errc{} || at != end || last < first)
        return Error{fmt::format("\"{}\" is neither a host nor a range such as 0-7", text)};
    return std::pair{first, last};
}

}  // namespace

Result<StrategySpec> parse_strategy(std::string_view text) {
    std::istringstream words{std::string(text)};
    StrategySpec spec;
    words >> spec.name;
    if (spec.name.empty() || spec.name.find('=') != std::string::npos)
        return Error{
            fmt::format("\"{}\" is not a strategy such as \"fifo\" or \"bytescheduler "
                        "partition=512kb credit=4\"",
                        text)};
    for (std::string word; words >> word;) {
        const auto equals = word.find('=');
        if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
            return Error{fmt::format("\"{}\" in \"{}\" is not KEY=VALUE", word, text)};
        const auto key = word.substr(0, equals);
        if (!spec.parameters.emplace(key, word.substr(equals + 1)).second)
            return Error{fmt::format("{} is given twice in \"{}\"", key, text)};
    }
    return spec;
}

Result<std::vector<std::size_t>> parse_hosts(std::string_view text, std::size_t count) {
    std::vector<std::size_t> hosts;
    for (std::size_t start = 0; start <= text.size();) {
        const std::size_t end = std::min(text.find(',', start), text.size());
        const auto range = parse_range(text.substr(start, end - start));
        if (!range)
            return range.error();
        start = end + 1;
        const auto [first, last] = range.value();
        if (last >= count)
            return Error{
                fmt::format("there is no host {}: the network has hosts 0 to {}", last, count - 1)};
        for (std::size_t host = first; host <= last; ++host) {
            if (std::find(hosts.begin(), hosts.end(), host) != hosts.end())
                return Error{fmt::format("host {} is named twice in \"{}\"", host, text)};
            hosts.push_back(host);
        }
    }
    return hosts;
}

Result<ClusterExperiment> parse_experiment(std::string_view text, std::string_view source,
                                           const ExperimentOptions& options) {
    const auto file = parse_toml(text, source);
    if (!file)
        return file.error();
    Problems problems{std::string(source)};
    SettingReader root(file.value(), "", 1, problems);
    ClusterExperiment experiment;
    experiment.path = source;
    experiment.name = std::filesystem::path(source).stem().string();
    root.require("title", "what the experiment is about, in a few words");
    experiment.title = root.text("title", "");
    experiment.description = root.text("description", "");

    const auto combined = all_combinations(file.value(), problems);
    if (!combined)
        return Error{fmt::format("{}: {}", source, combined.error().message)};
    for (const Combination& combination : combined.value()) {
        add_dimensions(combination, experiment);
        ClusterCase one = CaseReader(combination.settings, options, problems).read();
        one.labels = combination.labels;
        one.variant = combination.variant;
        experiment.cases.push_back(std::move(one));
    }
    read_report(root, experiment);
    auto known = case_keys();
    known.insert(known.end(), {"matrix", "report"});
    root.finish(known);
    if (problems.outcome())
        check_names(experiment.cases, problems);
    if (experiment.cases.empty())
        problems.add(1, "", "there is no case: a list is empty");
    if (auto good = problems.outcome(); !good)
        return good.error();
    return experiment;
}

Result<ClusterExperiment> load_experiment(const std::filesystem::path& path,
                                          const ExperimentOptions& options) {
    std::error_code failure;
    if (std::filesystem::is_directory(path, failure))
        return Error{fmt::format("{}: is a directory, not an experiment", path.string())};
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file)
        return system_error(path.string());
    return parse_experiment(content.str(), path.string(), options);
}

}  // namespace mercury::replay
