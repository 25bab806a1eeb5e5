// SPDX-License-Identifier: MIT
#include "config/devices.hpp"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include <linux/if.h>

#include <fmt/format.h>

#include "common/fd.hpp"
#include "common/runs.hpp"
#include "common/units.hpp"
#include "netlink/options.hpp"

namespace mercury {
namespace {

using netlink::Deadline;
using netlink::MercuryOptions;
using netlink::Option;
using netlink::Time;
using netlink::Unit;

/// One run of so many bits at most, or 0.
bool is_run(std::uint64_t mask, int bits) {
    const std::uint64_t above = mask + (mask & (~mask + 1));
    return std::popcount(above) <= 1 && std::popcount(mask) <= bits;
}

bool is_allowed(const Option& option, std::uint64_t value) {
    if (option.unit == Unit::Mask &&
        !is_run(value,
                option.attribute == TCA_MERCURY_MASK ? MERCURY_MASK_BITS : MERCURY_JOB_MASK_BITS))
        return false;
    return value == option.none || (value >= option.min && value <= option.max);
}

template <typename T>
std::optional<T> value_of(const Result<T>& result) {
    return result ? std::optional(result.value()) : std::nullopt;
}

/// The value that TEXT gives to an option of this kind; nothing, if it gives none.
std::optional<std::uint64_t> parse_value(const Option& option, std::string_view text) {
    if (option.none && text == "none")
        return option.none;
    switch (option.unit) {
        case Unit::Word: {
            const auto found = std::ranges::find(option.words, text);
            if (found == option.words.end())
                return {};
            return static_cast<std::uint64_t>(found - option.words.begin());
        }
        case Unit::Bytes:
            return value_of(parse_bytes(text));
        case Unit::BytesPerSecond: {
            const auto rate = parse_rate(text);
            return rate ? std::optional((rate.value().bits_per_second + 4) / 8) : std::nullopt;
        }
        case Unit::Nanoseconds: {
            const auto time = parse_time(text);
            return time ? std::optional(static_cast<std::uint64_t>(time.value().count()))
                        : std::nullopt;
        }
        default:
            return {};
    }
}

std::optional<std::uint64_t> parse_value(const Option& option, const Setting& setting) {
    if (const auto* text = std::get_if<std::string>(&setting.value))
        return parse_value(option, *text);
    if (const auto* flag = std::get_if<bool>(&setting.value))
        return option.unit == Unit::Flag ? std::optional(std::uint64_t{*flag}) : std::nullopt;
    const auto* const whole = std::get_if<std::int64_t>(&setting.value);
    const bool takes_numbers = option.unit == Unit::Count || option.unit == Unit::Percent ||
                               option.unit == Unit::Mask || option.unit == Unit::Bytes;
    if (whole == nullptr || *whole < 0 || !takes_numbers)
        return {};
    return static_cast<std::uint64_t>(*whole);
}

void read_option(SettingReader& reader, const Option& option, auto& field) {
    using Value = typename std::decay_t<decltype(field)>::value_type;
    field = Value(option.unset);
    const Setting* const setting = reader.any(option.name);
    if (setting == nullptr)
        return;
    const auto value = parse_value(option, *setting);
    if (value && is_allowed(option, *value))
        field = Value(*value);
    else
        reader.refuse(option.name, fmt::format("must be {}", netlink::allowed(option)));
}

void check_deadline(SettingReader& reader, const Deadline& deadline,
                    const MercuryOptions& options) {
    if (deadline.job.value_or(0) >= *options.jobs) {
        reader.refuse("deadlines", fmt::format("job {}: there are jobs 0 to {}", *deadline.job,
                                               *options.jobs - 1));
    }
    if (deadline.last >= *options.bands) {
        reader.refuse("deadlines", fmt::format("band {}: there are bands 0 to {}", deadline.last,
                                               *options.bands - 1));
    }
}

void read_deadlines(SettingReader& reader, MercuryOptions& options) {
    const auto texts = reader.texts("deadlines");
    if (!reader.has("deadlines"))
        return;
    options.deadlines.emplace();
    for (const std::string& text : texts) {
        const auto deadline = parse_deadline(text);
        if (!deadline) {
            reader.refuse("deadlines", deadline.error().message);
            continue;
        }
        check_deadline(reader, deadline.value(), options);
        options.deadlines->push_back(deadline.value());
    }
    // One is for the bands that are named by none.
    if (texts.size() >= MERCURY_DEADLINES_MAX) {
        reader.refuse("deadlines",
                      fmt::format("there may be {} at most", MERCURY_DEADLINES_MAX - 1));
    }
}

void read_weights(SettingReader& reader, DeviceSettings& device) {
    const auto texts = reader.texts("weights");
    if (!reader.has("weights"))
        return;
    const std::uint32_t jobs = *device.options.jobs;
    device.weights.emplace(jobs, std::uint32_t{MERCURY_WEIGHT_DEFAULT});
    for (const std::string& text : texts) {
        const auto parsed = parse_weight(text);
        if (!parsed) {
            reader.refuse("weights", parsed.error().message);
            continue;
        }
        const auto [first, last, weight] = parsed.value();
        if (last >= jobs) {
            reader.refuse("weights", fmt::format("job {}: there are jobs 0 to {}", last, jobs - 1));
            continue;
        }
        std::fill(device.weights->begin() + first, device.weights->begin() + last + 1, weight);
    }
}

DeviceSettings read_device(SettingReader& reader) {
    DeviceSettings device;
    reader.require("name", "of the network device, \"eth0\" for example");
    device.name = reader.text("name", "eth0");
    if (device.name.empty() || device.name.size() >= IFNAMSIZ)
        reader.refuse("name", fmt::format("must have 1 to {} letters", IFNAMSIZ - 1));
    netlink::for_each_option(device.options, [&](const Option& option, auto& field) {
        read_option(reader, option, field);
    });
    if ((*device.options.mask & *device.options.job_mask) != 0)
        reader.refuse("job_mask", "must not overlap mask");
    read_deadlines(reader, device.options);
    read_weights(reader, device);
    device.mq = reader.flag("mq", false);
    reader.finish();
    return device;
}

}  // namespace

std::vector<DeviceSettings> read_devices(SettingReader& file) {
    std::vector<DeviceSettings> devices;
    for (SettingReader& reader : file.list_of_tables("device")) {
        DeviceSettings device = read_device(reader);
        const bool twice = std::ranges::any_of(
            devices, [&](const DeviceSettings& other) { return other.name == device.name; });
        if (twice)
            reader.refuse("name", fmt::format("\"{}\" is here twice", device.name));
        devices.push_back(std::move(device));
    }
    return devices;
}

Result<std::vector<DeviceSettings>> load_devices(const std::filesystem::path& path) {
    std::ifstream file(path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (!file)
        return system_error(fmt::format("cannot read {}", path.string()));
    const auto table = parse_toml(text, path.string());
    if (!table)
        return table.error();
    Problems problems(path.string());
    SettingReader reader(table.value(), "", 1, problems);
    reader.require("device", "one table [[device]] for each device");
    auto devices = read_devices(reader);
    if (auto outcome = problems.outcome(); !outcome)
        return outcome.error();
    return devices;
}

Result<Deadline> parse_deadline(std::string_view text) {
    const Error wrong{fmt::format(
        "\"{}\" is not [JOB:]BAND[-BAND] TIME with a time of 1us to 3600s or none, such as "
        "\"0:3-5 2ms\"",
        text)};
    const auto space = text.find(' ');
    if (space == std::string_view::npos)
        return wrong;
    std::string_view bands = text.substr(0, space);
    const std::string_view time = text.substr(space + 1);
    Deadline deadline;
    if (const auto colon = bands.find(':'); colon != std::string_view::npos) {
        deadline.job = parse_number(bands.substr(0, colon));
        if (!deadline.job || *deadline.job == MERCURY_EVERY_JOB)
            return wrong;
        bands.remove_prefix(colon + 1);
    }
    const auto run = parse_run(bands);
    if (!run)
        return wrong;
    std::tie(deadline.first, deadline.last) = *run;
    deadline.time = netlink::no_time;
    if (time == "none")
        return deadline;
    const auto parsed = parse_time(time);
    if (!parsed || parsed.value() < std::chrono::nanoseconds(MERCURY_TIME_MIN))
        return wrong;
    deadline.time = Time{static_cast<std::uint64_t>(parsed.value().count())};
    return deadline;
}

Result<JobWeight> parse_weight(std::string_view text) {
    const auto space = text.find(' ');
    const auto jobs = parse_run(text.substr(0, space));
    const auto weight = parse_number(space == std::string_view::npos ? "" : text.substr(space + 1));
    if (!jobs || !weight || *weight < MERCURY_WEIGHT_MIN || *weight > MERCURY_WEIGHT_MAX) {
        return Error{fmt::format(
            "\"{}\" is not JOB[-JOB] WEIGHT with a weight of {} to {}, such as \"2-3 2\"", text,
            MERCURY_WEIGHT_MIN, MERCURY_WEIGHT_MAX)};
    }
    return JobWeight{jobs->first, jobs->second, *weight};
}

std::string to_text(const Deadline& deadline) {
    std::string text = deadline.job ? fmt::format("{}:", *deadline.job) : "";
    text += fmt::format("{}", deadline.first);
    if (deadline.last != deadline.first)
        text += fmt::format("-{}", deadline.last);
    const std::string time = deadline.time == netlink::no_time
                                 ? "none"
                                 : time_to_string(std::chrono::nanoseconds(deadline.time.count()));
    return fmt::format("{} {}", text, time);
}

}  // namespace mercury
