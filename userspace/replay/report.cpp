// SPDX-License-Identifier: MIT
#include "replay/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "replay/bound.hpp"
#include "replay/order_bound.hpp"

namespace mercury::replay {
namespace {

using Json = nlohmann::ordered_json;

double megabytes(std::uint64_t bytes) {
    return static_cast<double>(bytes) / 1e6;
}

/// For JSON: nanoseconds are exact to six decimals of a millisecond, more is noise.
double rounded(double value, double digits = 1e6) {
    return std::round(value * digits) / digits;
}
double json_ms(std::chrono::nanoseconds time) {
    return rounded(to_ms(time));
}

const ArmResult* find_arm(const Experiment& experiment, std::string_view name) {
    const auto found =
        std::find_if(experiment.arms.begin(), experiment.arms.end(),
                     [&](const ArmResult& result) { return result.arm->name == name; });
    return found == experiment.arms.end() ? nullptr : &*found;
}

std::string headline(const Profile& profile) {
    return fmt::format(
        "{} ({})\n{} layers with parameters, {:.1f} MB; forward {:.1f} ms, backward {:.1f} ms\n",
        profile.name, profile.source, profile.layers.size(), megabytes(profile.bytes()),
        to_ms(profile.forward()), to_ms(profile.backward()));
}

std::string describe_bound(const Bound& bound, Rate rate) {
    return fmt::format(
        "max(compute {:.1f} ms, wire {:.1f} ms); wire = parameter bytes / {:.3g} Gbit/s of TCP "
        "goodput, "
        "the same both ways\n",
        to_ms(bound.compute), to_ms(bound.wire), tcp_goodput(rate) / 1e9);
}

/// What each step from fifo to mercury is worth, if all of them were measured.
std::string describe_gain(const Experiment& experiment) {
    const ArmResult* const fifo = find_arm(experiment, "fifo");
    const ArmResult* const overlap = find_arm(experiment, "overlap");
    const ArmResult* const pfifo = find_arm(experiment, "pfifo");
    const ArmResult* const mercury = find_arm(experiment, "mercury");
    if (fifo == nullptr || overlap == nullptr || pfifo == nullptr || mercury == nullptr)
        return {};
    const auto ratio = [](const ArmResult* before, const ArmResult* after) {
        return to_ms(before->median) / to_ms(after->median);
    };
    return fmt::format(
        "\nfrom fifo to mercury {:.2f}x = {:.2f}x push and pull overlap x {:.2f}x a connection for "
        "each "
        "class,\nbound late, x {:.2f}x packets in the order of need\n",
        ratio(fifo, mercury), ratio(fifo, overlap), ratio(overlap, pfifo), ratio(pfifo, mercury));
}

Json classes_json(const std::vector<PriorityClass>& classes) {
    Json array = Json::array();
    for (std::size_t i = 0; i < classes.size(); ++i) {
        array.push_back({{"class", i},
                         {"mark", mark_of_class(0, i)},
                         {"first_layer", classes[i].first},
                         {"last_layer", classes[i].last},
                         {"bytes", classes[i].bytes}});
    }
    return array;
}

Json profile_json(const Profile& profile) {
    return {{"name", profile.name},
            {"source", profile.source},
            {"layers", profile.layers.size()},
            {"param_bytes", profile.bytes()},
            {"forward_ms", json_ms(profile.forward())},
            {"backward_ms", json_ms(profile.backward())}};
}

/// About 600 samples for the longest iteration, of a round width.
double bin_width_ms(const Experiment& experiment) {
    double longest = 0;
    for (const ArmResult& result : experiment.arms)
        longest = std::max(longest, to_ms(result.typical.end - result.typical.start));
    const double power = std::pow(10.0, std::floor(std::log10(std::max(longest, 1e-3) / 600)));
    const double mantissa = longest / 600 / power;
    return rounded((mantissa <= 2 ? 2 : mantissa <= 5 ? 5 : 10) * power);
}

Json spans_json(const std::vector<Span>& spans, Clock::time_point origin) {
    Json array = Json::array();
    for (std::size_t i = 0; i < spans.size(); ++i)
        array.push_back({i, json_ms(spans[i].start - origin), json_ms(spans[i].end - origin)});
    return array;
}

/// Bytes by bin and layer. What arrives in one piece was on the wire one byte after the other, at
/// RATE, before it was complete.
Json wire_json(const std::vector<Arrival>& arrivals, Clock::time_point origin, double bin_ms,
               Rate rate) {
    const double ms_per_byte = 8e3 / static_cast<double>(rate.bits_per_second);
    std::map<std::pair<std::int64_t, std::uint32_t>, double> bytes;
    for (const Arrival& arrival : arrivals) {
        const double end = to_ms(arrival.when - origin);
        double from = std::max(0.0, end - static_cast<double>(arrival.bytes) * ms_per_byte);
        const double bytes_per_ms = static_cast<double>(arrival.bytes) / std::max(end - from, 1e-9);
        for (auto bin = static_cast<std::int64_t>(from / bin_ms); from < end; ++bin) {
            const double until = std::min(end, static_cast<double>(bin + 1) * bin_ms);
            bytes[{bin, arrival.message.layer}] += (until - from) * bytes_per_ms;
            from = until;
        }
    }
    Json array = Json::array();
    for (const auto& [key, count] : bytes) {
        if (const auto whole = std::llround(count); whole > 0)
            array.push_back({key.first, key.second, whole});
    }
    return array;
}

}  // namespace

std::string describe_profile(const Profile& profile, const std::vector<PriorityClass>& classes,
                             Rate rate) {
    std::string text = headline(profile);
    text += fmt::format("\n{:>5} {:>5} {:>10} {:>11} {:>10}  {}\n", "layer", "class", "forward ms",
                        "backward ms", "MB", "name");
    for (std::size_t c = 0; c < classes.size(); ++c) {
        for (std::size_t i = classes[c].first; i <= classes[c].last; ++i) {
            const Layer& layer = profile.layers[i];
            text += fmt::format("{:>5} {:>5} {:>10.3f} {:>11.3f} {:>10.3f}  {}\n", i, c,
                                to_ms(layer.forward), to_ms(layer.backward), megabytes(layer.bytes),
                                layer.name);
        }
    }
    text += "\nClasses, the first is needed first:\n";
    for (std::size_t c = 0; c < classes.size(); ++c) {
        text +=
            fmt::format("  class {}: mark {}, layers {} to {}, {:.1f} MB\n", c, mark_of_class(0, c),
                        classes[c].first, classes[c].last, megabytes(classes[c].bytes));
    }
    const Bound bound = bound_of(profile, rate);
    text += fmt::format("\nBound at {}: {:.1f} ms = {}", to_string(rate), to_ms(bound.total()),
                        describe_bound(bound, rate));
    return text;
}

Result<std::string> describe_models(const ComputeRate& compute, Rate rate) {
    constexpr auto row =
        "| {:<12} | {:>6} | {:>11} | {:>5} | {:<24} | {:>7} | {:>10} | {:>7} | {:>8} |\n";
    std::string text = fmt::format(row, "model", "layers", "parameters", "batch", "of", "TFLOP/s",
                                   "compute ms", "wire ms", "bound ms");
    text += fmt::format(row, "---", "--:", "--:", "--:", "---", "--:", "--:", "--:", "--:");
    for (const BuiltinModel& model : builtin_models()) {
        const auto profile = model_by_name(model.name, compute);
        if (!profile)
            return profile.error();
        const Bound bound = bound_of(profile.value(), rate);
        text += fmt::format(
            row, model.name, profile.value().layers.size(), profile.value().bytes() / sizeof(float),
            compute.batch.value_or(model.batch), model.sample,
            fmt::format("{:g}", compute.tflops.value_or(model.tflops)),
            fmt::format("{:.1f}", to_ms(bound.compute)), fmt::format("{:.1f}", to_ms(bound.wire)),
            fmt::format("{:.1f}", to_ms(order_bound(profile.value(), bound.wire))));
    }
    text += fmt::format(
        "\ncompute: forward and backward pass. wire: the parameters once over {}, as TCP payload.\n"
        "bound: what an ideal network would need in the best order; above max(compute, wire) "
        "where\n"
        "large gradients are ready late.\n",
        to_string(rate));
    return text;
}

std::string describe_experiment(const Experiment& experiment) {
    const Settings& settings = experiment.settings;
    const Bound bound = bound_of(experiment.profile, settings.rate);
    const ArmResult* const fifo = find_arm(experiment, all_arms().front().name);
    const auto speed_up = [&](std::chrono::nanoseconds time) {
        return fifo == nullptr ? std::string("-")
                               : fmt::format("{:.2f}x", to_ms(fifo->median) / to_ms(time));
    };

    std::string text = headline(experiment.profile);
    text += fmt::format("link {}, {} each way; {} priority classes; median of {} iterations\n",
                        to_string(settings.rate), time_to_string(settings.delay),
                        experiment.classes.size(), settings.iterations);
    if (settings.uploads != 0)
        text += fmt::format("beside the pushes, {} unmarked bulk uploads\n", settings.uploads);
    text += '\n';
    text += fmt::format("{:<8} {:>12} {:>11} {:>9} {:>10} {:>12} {:>11} {:>6}\n", "", "iteration",
                        "vs fifo", "of bound", "GPU waits", "bulk Gbit/s", "retransmits", "drops");
    for (const ArmResult& result : experiment.arms) {
        text += fmt::format(
            "{:<8} {:>9.1f} ms {:>11} {:>7.0f} % {:>7.1f} ms {:>12.4g} {:>11} {:>6}\n",
            result.arm->name, to_ms(result.median), speed_up(result.median),
            100 * to_ms(bound.total()) / to_ms(result.median), to_ms(result.median - bound.compute),
            result.goodput / 1e9, result.retransmits, result.drops);
    }
    text += fmt::format("{:<8} {:>9.1f} ms {:>11} {:>7.0f} % {:>7.1f} ms {:>12.4g}\n\n", "bound",
                        to_ms(bound.total()), speed_up(bound.total()), 100.0,
                        to_ms(bound.total() - bound.compute), tcp_goodput(settings.rate) / 1e9);
    for (const ArmResult& result : experiment.arms)
        text += fmt::format("{:<8} {}\n", result.arm->name, result.arm->description);
    if (settings.uploads != 0) {
        text += "uploads got";
        for (const ArmResult& result : experiment.arms)
            text += fmt::format(" {:.2f} ({})", result.upload_goodput / 1e9, result.arm->name);
        text += " Gbit/s\n";
    }
    text += fmt::format("{:<8} {}", "bound", describe_bound(bound, settings.rate));
    text += describe_gain(experiment);
    return text;
}

std::string experiment_json(const Experiment& experiment) {
    const Settings& settings = experiment.settings;
    const Bound bound = bound_of(experiment.profile, settings.rate);

    Json iteration_ms;
    Json arms;
    for (const ArmResult& result : experiment.arms) {
        const std::string name(result.arm->name);
        iteration_ms[name] = json_ms(result.median);
        Json iterations = Json::array();
        for (const auto time : result.iterations)
            iterations.push_back(json_ms(time));
        arms[name] = {
            {"description", result.arm->description},
            {"connections", result.connections},
            {"qdisc", result.arm->qdisc},
            {"server_returns",
             result.arm->answer == Answer::at_once ? "bytes as they arrive" : "whole layers"},
            {"iterations_ms", std::move(iterations)},
            {"gpu_waits_ms", json_ms(result.median - bound.compute)},
            {"bulk_goodput_gbit", rounded(result.goodput / 1e9)},
            {"retransmits", result.retransmits},
            {"upload_gbit", rounded(result.upload_goodput / 1e9)},
            {"drops", result.drops}};
    }
    iteration_ms["bound"] = json_ms(bound.total());

    const Json json{{"iteration_ms", std::move(iteration_ms)},
                    {"profile", profile_json(experiment.profile)},
                    {"rate", to_string(settings.rate)},
                    {"delay", time_to_string(settings.delay)},
                    {"shaper", "tbf"},
                    {"warm_up_iterations", settings.warm_up},
                    {"iterations", settings.iterations},
                    {"uploads", settings.uploads},
                    {"bound",
                     {{"formula", "max(compute, wire)"},
                      {"compute_ms", json_ms(bound.compute)},
                      {"wire_ms", json_ms(bound.wire)},
                      {"goodput_gbit", rounded(tcp_goodput(settings.rate) / 1e9)}}},
                    {"classes", classes_json(experiment.classes)},
                    {"arms", std::move(arms)}};
    return json.dump(2) + "\n";
}

std::string timeline_json(const Experiment& experiment) {
    Json layers = Json::array();
    for (const Layer& layer : experiment.profile.layers)
        layers.push_back({{"name", layer.name}, {"bytes", layer.bytes}});

    const double bin_ms = bin_width_ms(experiment);
    Json arms;
    for (const ArmResult& result : experiment.arms) {
        const auto origin = result.typical.start;
        arms[std::string(result.arm->name)] = {
            {"iteration_ms", json_ms(result.typical.end - origin)},
            {"backward", spans_json(result.typical.backward, origin)},
            {"forward", spans_json(result.typical.forward, origin)},
            {"push", wire_json(result.pushed, origin, bin_ms, experiment.settings.rate)},
            {"pull", wire_json(result.pulled, origin, bin_ms, experiment.settings.rate)}};
    }
    const Json json{
        {"profile", profile_json(experiment.profile)},
        {"rate_gbit", static_cast<double>(experiment.settings.rate.bits_per_second) / 1e9},
        {"layers", std::move(layers)},
        {"classes", classes_json(experiment.classes)},
        {"bin_ms", bin_ms},
        {"arms", std::move(arms)}};
    return json.dump() + "\n";
}

}  // namespace mercury::replay
