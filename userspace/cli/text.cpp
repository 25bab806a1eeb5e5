// SPDX-License-Identifier: MIT
#include "cli/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "cli/rows.hpp"
#include "common/logging.hpp"
#include "netlink/options.hpp"

namespace mercury::cli {
namespace {

using netlink::Counter;
using netlink::Option;
using netlink::Unit;

struct Scale {
    double size;
    std::string_view unit;
};

constexpr std::array byte_scales{Scale{1, " B"}, Scale{0x1p10, " KiB"}, Scale{0x1p20, " MiB"},
                                 Scale{0x1p30, " GiB"}, Scale{0x1p40, " TiB"}};
constexpr std::array rate_scales{Scale{1, " bit/s"}, Scale{1e3, " Kbit/s"}, Scale{1e6, " Mbit/s"},
                                 Scale{1e9, " Gbit/s"}, Scale{1e12, " Tbit/s"}};
constexpr std::array time_scales{Scale{1, "ns"}, Scale{1e3, "us"}, Scale{1e6, "ms"},
                                 Scale{1e9, "s"}};
constexpr std::array count_scales{Scale{1, ""}, Scale{1e3, "k"}, Scale{1e6, "M"}, Scale{1e9, "G"},
                                  Scale{1e12, "T"}};

/// Three digits, and the unit that leaves no more than three before the point.
std::string scaled(double value, std::span<const Scale> scales) {
    std::size_t i = 0;
    while (i + 1 < scales.size() && value >= scales[i].size * 999.5)
        ++i;
    const double part = value / scales[i].size;
    const int digits = part >= 99.95 || part == std::floor(part) ? 0 : part >= 9.995 ? 1 : 2;
    return fmt::format("{:.{}f}{}", part, digits, scales[i].unit);
}

double per_second(std::uint64_t count, std::chrono::nanoseconds interval) {
    const double seconds = std::chrono::duration<double>(interval).count();
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string number_text(Unit unit, std::uint64_t value) {
    if (unit == Unit::Bytes)
        return bytes_text(value);
    if (unit == Unit::Nanoseconds)
        return time_text(netlink::Time{value});
    return fmt::format("{}", value);
}

std::string options_text(const netlink::MercuryOptions& options) {
    std::string text;
    netlink::for_each_option(options, [&](const Option& option, const auto& field) {
        if (field)
            text += fmt::format(" {} {}", option.name,
                                netlink::to_text(option, netlink::number_of(*field)));
    });
    return text;
}

/// Those that are not 0, since there are many.
std::string counters_text(const netlink::MercuryStatistics& statistics) {
    std::string text;
    netlink::for_each_counter(statistics, [&](const Counter& counter, const auto& field) {
        if (!field || netlink::number_of(*field) == 0)
            return;
        std::string_view name = counter.json;
        if (name.ends_with("_ns"))
            name.remove_suffix(3);
        text += fmt::format("{}{} {}", text.empty() ? "  " : ", ", name,
                            number_text(counter.unit, netlink::number_of(*field)));
    });
    return text.empty() ? text : text + "\n";
}

std::vector<std::string> class_row(const netlink::Class& one) {
    const ClassRow row = row_of(one);
    return {to_string(one.classid),
            row.job,
            row.band,
            fmt::format("{}", one.statistics.packets),
            bytes_text(one.statistics.bytes),
            fmt::format("{}", one.statistics.qlen),
            bytes_text(one.statistics.backlog),
            fmt::format("{}", one.statistics.drops),
            row.missed ? fmt::format("{}", *row.missed) : "-",
            quantile_text(row.sojourn, 0.50),
            quantile_text(row.sojourn, 0.99)};
}

std::string qdisc_text(const DeviceState& device, const QdiscState& state) {
    const auto& statistics = state.qdisc.statistics;
    std::string text = fmt::format("{}: mercury {} {}{}\n", printable(device.link.name),
                                   to_string(state.qdisc.handle), to_string(state.qdisc.parent),
                                   state.qdisc.options ? options_text(*state.qdisc.options) : "");
    text += fmt::format("  sent {} in {} packets, dropped {}, overlimits {}, backlog {} in {}\n",
                        bytes_text(statistics.bytes), statistics.packets, statistics.drops,
                        statistics.overlimits, bytes_text(statistics.backlog), statistics.qlen);
    if (state.qdisc.mercury)
        text += counters_text(*state.qdisc.mercury);
    std::vector<std::vector<std::string>> rows{{"CLASS", "JOB", "BAND", "PACKETS", "BYTES", "QLEN",
                                                "BACKLOG", "DROPS", "MISSED", "P50", "P99"}};
    std::ranges::transform(state.classes, std::back_inserter(rows), class_row);
    return text + table(rows, 1);
}

std::vector<std::string> status_row(const DeviceState& device, const QdiscState& state) {
    const auto& statistics = state.qdisc.statistics;
    const netlink::MercuryOptions options = state.qdisc.options.value_or(netlink::MercuryOptions{});
    const netlink::MercuryStatistics mercury =
        state.qdisc.mercury.value_or(netlink::MercuryStatistics{});
    return {printable(device.link.name),
            fmt::format("mercury {}", to_string(state.qdisc.handle)),
            limit_text(state.qdisc),
            fmt::format("{}/{}", mercury.active_jobs.value_or(0), options.jobs.value_or(0)),
            bytes_text(statistics.bytes),
            fmt::format("{}", statistics.drops),
            fmt::format("{}", statistics.qlen),
            bytes_text(mercury.memory.value_or(0)),
            fmt::format("{}", mercury.missed.value_or(0))};
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
    return scaled(static_cast<double>(bytes), byte_scales);
}

std::string rate_text(std::uint64_t bytes, std::chrono::nanoseconds interval) {
    return scaled(std::round(per_second(bytes, interval) * 8), rate_scales);
}

std::string time_text(netlink::Time time) {
    return scaled(static_cast<double>(time.count()), time_scales);
}

std::string frequency_text(std::uint64_t count, std::chrono::nanoseconds interval) {
    return scaled(per_second(count, interval), count_scales);
}

std::string quantile_text(netlink::Histogram histogram, double part) {
    const auto bucket = netlink::quantile(histogram, part);
    if (!bucket)
        return "-";
    if (const auto below = netlink::upper_bound(histogram, *bucket))
        return "<" + time_text(*below);
    return ">=" + time_text(netlink::lower_bound(*bucket));
}

std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t left,
                  std::size_t last) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += i == 0 ? "" : "  ";
            const bool is_flush_left = i < left || i + last >= row.size();
            line += is_flush_left ? fmt::format("{:<{}}", row[i], widths[i])
                                  : fmt::format("{:>{}}", row[i], widths[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string status_text(const Snapshot& snapshot) {
    std::vector<std::vector<std::string>> rows{
        {"DEVICE", "QDISC", "RATE", "JOBS", "SENT", "DROPS", "QLEN", "MEMORY", "MISSED"}};
    for (const DeviceState& device : snapshot.devices) {
        for (const QdiscState& state : device.mercury)
            rows.push_back(status_row(device, state));
        if (!device.mercury.empty() || device.link.loopback)
            continue;
        const auto at_root =
            std::ranges::find(device.qdiscs, netlink::root, &netlink::Qdisc::parent);
        rows.push_back({printable(device.link.name),
                        at_root == device.qdiscs.end() ? "none" : printable(at_root->kind)});
    }
    return table(rows, 2);
}

std::string stats_text(const Snapshot& snapshot) {
    std::string text;
    for (const DeviceState& device : snapshot.devices) {
        for (const QdiscState& state : device.mercury)
            text += (text.empty() ? "" : "\n") + qdisc_text(device, state);
    }
    return text.empty() ? "no mercury qdisc here\n" : text;
}

}  // namespace mercury::cli
