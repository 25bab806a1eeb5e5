// SPDX-License-Identifier: MIT
#include "layers/profile.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "common/fd.hpp"

namespace mercury {
namespace {

constexpr std::string_view csv_header = "idx,layer,fwd_ms,bwd_ms,param_bytes";
constexpr double layer_ms_max = std::chrono::duration<double, std::milli>(layer_time_max).count();

/// A place in the input, and how to complain about it.
struct Place {
    std::string_view source;
    std::size_t line;  // from 1

    template <typename... Args>
    Error error(fmt::format_string<Args...> format, Args&&... args) const {
        return Error{fmt::format("{}:{}: {}", source, line,
                                 fmt::format(format, std::forward<Args>(args)...))};
    }
};

std::string_view trim(std::string_view text) {
    constexpr std::string_view blank = " \t\r";
    const auto first = text.find_first_not_of(blank);
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const auto at = text.find(separator);
        parts.push_back(text.substr(0, at));
        if (at == std::string_view::npos)
            return parts;
        text.remove_prefix(at + separator.size());
    }
}

Result<double> parse_number(const Place& place, std::string_view field, std::string_view text,
                            double max) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, number);
    if (text.empty() || failure == std::errc::invalid_argument || rest != end)
        return place.error("{} \"{}\" is not a number", field, text);
    if (failure == std::errc::result_out_of_range || !std::isfinite(number))
        return place.error("{} \"{}\" is not finite", field, text);
    if (number < 0)
        return place.error("{} \"{}\" is negative", field, text);
    if (number > max)
        return place.error("{} \"{}\" is too large (at most {:g})", field, text, max);
    return number;
}

Result<std::chrono::nanoseconds> parse_ms(const Place& place, std::string_view field,
                                          std::string_view text) {
    const auto ms = parse_number(place, field, text, layer_ms_max);
    if (!ms)
        return ms.error();
    return std::chrono::nanoseconds(std::llround(ms.value() * 1e6));
}

Result<std::uint64_t> parse_bytes(const Place& place, std::string_view field,
                                  std::string_view text) {
    const auto bytes = parse_number(place, field, text, static_cast<double>(layer_bytes_max));
    if (!bytes)
        return bytes.error();
    if (bytes.value() != std::floor(bytes.value()))
        return place.error("{} \"{}\" is not a whole number of bytes", field, text);
    return static_cast<std::uint64_t>(bytes.value());
}

/// The common end of both parsers. LINE_COUNT is where the input ends.
Result<Profile> finish(std::string_view source, std::size_t line_count,
                       const std::vector<Layer>& layers) {
    const Place end{source, line_count};
    if (layers.empty())
        return end.error("the file ends without a single layer");
    std::vector<Layer> folded = fold_parameter_free(layers);
    if (folded.empty())
        return end.error("no layer has parameters: there is nothing to send");

    // "vgg16.graph.txt" and "vgg16.csv" are both called vgg16.
    std::string name = std::filesystem::path(source).filename().string();
    if (const auto dot = name.find('.', 1); dot != std::string::npos)
        name.resize(dot);
    return Profile{std::move(name), std::string(source), std::move(folded)};
}

// PipeDream's graph ----------------------------------------------------------------------------

struct Node {
    std::size_t line = 0;
    bool is_input = false;  // data loading, not a layer
    Layer layer;
    std::vector<std::size_t> successors;
    std::size_t waiting_for = 0;  // predecessors not yet in the order
};

/// Node numbers are the order in which the profiler met the layers.
using Graph = std::map<std::size_t, Node>;

Result<std::size_t> parse_node_id(const Place& place, std::string_view text) {
    std::size_t id = 0;
    if (text.starts_with("node")) {
        const char* const end = text.data() + text.size();
        const auto [rest, failure] = std::from_chars(text.data() + 4, end, id);
        if (failure == std::errc{} && rest == end)
            return id;
    }
    return place.error("\"{}\" is not a node name such as node12", text);
}

/// "nodeN -- LAYER -- KEY=VALUE, KEY=VALUE, ...[ -- stage_id=N]"
Result<void> parse_node(const Place& place, std::string_view line, Graph& graph) {
    const auto parts = split(line, " -- ");
    if (parts.size() < 3) {
        return place.error(
            "a node line is \"nodeN -- LAYER -- forward_compute_time=MS, ...\", this has {} of "
            "the three parts",
            parts.size());
    }
    const auto id = parse_node_id(place, trim(parts[0]));
    if (!id)
        return id.error();

    Node node;
    node.line = place.line;
    node.layer.name = trim(parts[1]);
    if (node.layer.name.empty())
        return place.error("the layer has no name");
    node.is_input = node.layer.name == "Input";

    std::optional<std::string_view> forward;
    std::optional<std::string_view> backward;
    std::optional<std::string_view> bytes;
    for (const auto pair : split(parts[2], ", ")) {
        const auto equals = pair.find('=');
        if (equals == std::string_view::npos)
            return place.error("\"{}\" is not KEY=VALUE", trim(pair));
        const auto key = trim(pair.substr(0, equals));
        const auto value = trim(pair.substr(equals + 1));
        if (key == "forward_compute_time")
            forward = value;
        else if (key == "backward_compute_time")
            backward = value;
        else if (key == "parameter_size")
            bytes = value;
    }
    if (!forward)
        return place.error("forward_compute_time is missing");
    if (!backward)
        return place.error("backward_compute_time is missing");
    if (!bytes)
        return place.error("parameter_size is missing");

    const auto forward_ns = parse_ms(place, "forward_compute_time", *forward);
    if (!forward_ns)
        return forward_ns.error();
    const auto backward_ns = parse_ms(place, "backward_compute_time", *backward);
    if (!backward_ns)
        return backward_ns.error();
    const auto byte_count = parse_bytes(place, "parameter_size", *bytes);
    if (!byte_count)
        return byte_count.error();
    node.layer.forward = forward_ns.value();
    node.layer.backward = backward_ns.value();
    node.layer.bytes = byte_count.value();

    const auto [existing, inserted] = graph.emplace(id.value(), std::move(node));
    if (!inserted) {
        return place.error("node{} is defined twice, first on line {}", id.value(),
                           existing->second.line);
    }
    return {};
}

/// "<tab>nodeA -- nodeB": B needs what A computes.
Result<void> parse_edge(const Place& place, std::string_view line, Graph& graph) {
    const auto parts = split(line, " -- ");
    if (parts.size() != 2)
        return place.error("an edge line is \"<tab>nodeA -- nodeB\"");
    const auto from = parse_node_id(place, trim(parts[0]));
    if (!from)
        return from.error();
    const auto to = parse_node_id(place, trim(parts[1]));
    if (!to)
        return to.error();
    for (const auto id : {from.value(), to.value()}) {
        if (!graph.contains(id))
            return place.error("the edge names node{}, which no line above defines", id);
    }
    graph[from.value()].successors.push_back(to.value());
    ++graph[to.value()].waiting_for;
    return {};
}

/// The layers so that each comes after all that it needs; of those that may come next, the one
/// with the lowest number. Drops the input.
Result<std::vector<Layer>> topological_order(std::string_view source, Graph graph) {
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (const auto& [id, node] : graph) {
        if (node.waiting_for == 0)
            ready.push(id);
    }

    std::vector<Layer> layers;
    std::size_t ordered = 0;
    while (!ready.empty()) {
        Node& node = graph[ready.top()];
        ready.pop();
        ++ordered;
        if (!node.is_input)
            layers.push_back(std::move(node.layer));
        for (const auto successor : node.successors) {
            if (--graph[successor].waiting_for == 0)
                ready.push(successor);
        }
    }

    if (ordered < graph.size()) {
        const auto stuck = std::find_if(graph.begin(), graph.end(), [](const auto& entry) {
            return entry.second.waiting_for > 0;
        });
        return Place{source, stuck->second.line}.error(
            "node{} ({}) needs its own result: the edges form a cycle", stuck->first,
            stuck->second.layer.name);
    }
    return layers;
}

// CSV -----------------------------------------------------------------------------------------

/// The fields of one line; a quoted field may hold commas, and "" for a quote.
Result<std::vector<std::string>> split_csv(const Place& place, std::string_view line) {
    std::vector<std::string> fields(1);
    std::size_t at = 0;
    while (at < line.size()) {
        if (line[at] == ',') {
            fields.emplace_back();
            ++at;
        } else if (line[at] == '"' && fields.back().empty()) {
            for (++at;; ++at) {
                if (at >= line.size())
                    return place.error("a quoted field is not closed");
                if (line[at] != '"') {
                    fields.back() += line[at];
                } else if (line.substr(at).starts_with("\"\"")) {
                    fields.back() += '"';
                    ++at;
                } else {
                    ++at;
                    break;
                }
            }
            if (at < line.size() && line[at] != ',')
                return place.error("text after the closing quote of field {}", fields.size());
        } else {
            fields.back() += line[at++];
        }
    }
    return fields;
}

Result<Layer> parse_csv_row(const Place& place, std::string_view line, std::size_t expected_idx) {
    const auto split_line = split_csv(place, line);
    if (!split_line)
        return split_line.error();
    const auto& fields = split_line.value();
    if (fields.size() != 5) {
        return place.error("{} field{}, expected 5: {}", fields.size(),
                           fields.size() == 1 ? "" : "s", csv_header);
    }
    if (trim(fields[0]) != std::to_string(expected_idx)) {
        return place.error(
            "idx \"{}\", expected {}: rows count from 0 in the order of the forward pass",
            fields[0], expected_idx);
    }

    const auto forward = parse_ms(place, "fwd_ms", trim(fields[2]));
    if (!forward)
        return forward.error();
    const auto backward = parse_ms(place, "bwd_ms", trim(fields[3]));
    if (!backward)
        return backward.error();
    const auto bytes = parse_bytes(place, "param_bytes", trim(fields[4]));
    if (!bytes)
        return bytes.error();
    Layer layer{std::string(trim(fields[1])), forward.value(), backward.value(), bytes.value()};
    if (layer.name.empty())
        return place.error("the layer has no name");
    return layer;
}

}  // namespace

std::chrono::nanoseconds Profile::forward() const {
    return std::accumulate(layers.begin(), layers.end(), std::chrono::nanoseconds{0},
                           [](auto sum, const Layer& layer) { return sum + layer.forward; });
}

std::chrono::nanoseconds Profile::backward() const {
    return std::accumulate(layers.begin(), layers.end(), std::chrono::nanoseconds{0},
                           [](auto sum, const Layer& layer) { return sum + layer.backward; });
}

std::uint64_t Profile::bytes() const {
    return std::accumulate(layers.begin(), layers.end(), std::uint64_t{0},
                           [](auto sum, const Layer& layer) { return sum + layer.bytes; });
}

std::vector<Layer> fold_parameter_free(const std::vector<Layer>& layers) {
    std::vector<Layer> folded;
    Layer before_first;
    for (const Layer& layer : layers) {
        if (layer.bytes > 0) {
            folded.push_back(layer);
            continue;
        }
        Layer& target = folded.empty() ? before_first : folded.back();
        target.forward += layer.forward;
        target.backward += layer.backward;
    }
    if (!folded.empty()) {
        folded.front().forward += before_first.forward;
        folded.front().backward += before_first.backward;
    }
    return folded;
}

Result<Profile> parse_graph(std::string_view text, std::string_view source) {
    Graph graph;
    Place place{source, 0};
    for (const auto line : split(text, "\n")) {
        ++place.line;
        if (trim(line).empty())
            continue;
        const auto parsed = line.starts_with('\t') ? parse_edge(place, line, graph)
                                                   : parse_node(place, line, graph);
        if (!parsed)
            return parsed.error();
    }

    auto layers = topological_order(source, std::move(graph));
    if (!layers)
        return layers.error();
    return finish(source, place.line, layers.value());
}

Result<Profile> parse_csv(std::string_view text, std::string_view source) {
    std::vector<Layer> layers;
    bool header_seen = false;
    Place place{source, 0};
    for (const auto line : split(text, "\n")) {
        ++place.line;
        if (trim(line).empty())
            continue;
        if (!header_seen) {
            if (trim(line) != csv_header)
                return place.error("the first line must be \"{}\"", csv_header);
            header_seen = true;
            continue;
        }
        auto layer = parse_csv_row(place, trim(line), layers.size());
        if (!layer)
            return layer.error();
        layers.push_back(std::move(layer).value());
    }
    return finish(source, place.line, layers);
}

Result<Profile> load_profile(const std::filesystem::path& path) {
    std::error_code failure;
    const auto status = std::filesystem::status(path, failure);
    if (!std::filesystem::exists(status))
        return Error{fmt::format("{}: no such file", path.string())};
    if (std::filesystem::is_directory(status))
        return Error{fmt::format("{}: is a directory, not a profile", path.string())};

    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file)
        return system_error(path.string());

    const std::string text = std::move(content).str();
    const auto start = text.find_first_not_of(" \t\r\n");
    if (start == std::string::npos)
        return Error{fmt::format("{}:1: the file is empty", path.string())};
    const auto body = std::string_view(text).substr(start);
    if (body.starts_with("node"))
        return parse_graph(text, path.string());
    if (body.starts_with("idx"))
        return parse_csv(text, path.string());
    return Place{path.string(), 1}.error(
        "neither PipeDream's graph.txt (\"node1 -- ...\") nor a CSV that starts with \"{}\"",
        csv_header);
}

}  // namespace mercury
