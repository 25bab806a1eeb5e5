// SPDX-License-Identifier: MIT
#include "replay/strategy_parameters.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "common/units.hpp"

namespace mercury::replay {

const std::string* ParameterReader::find(const std::string& name) {
    known_.insert(name);
    const auto given = spec_.parameters.find(name);
    return given == spec_.parameters.end() ? nullptr : &given->second;
}

void ParameterReader::refuse(const std::string& name, const std::string& text,
                             std::string_view allowed) {
    if (!wrong_)
        wrong_ = Error{
            fmt::format("strategy {}: {} must be {}, not \"{}\"", spec_.name, name, allowed, text)};
}

std::uint64_t ParameterReader::bytes(const std::string& name, std::uint64_t otherwise,
                                     std::uint64_t min, std::uint64_t max) {
    const std::string* const text = find(name);
    if (text == nullptr)
        return otherwise;
    const auto value = parse_bytes(*text);
    if (value && value.value() >= min && value.value() <= max)
        return value.value();
    refuse(
        name, *text,
        fmt::format("{} to {} bytes, such as 512kb", bytes_to_string(min), bytes_to_string(max)));
    return otherwise;
}

std::uint64_t ParameterReader::count(const std::string& name, std::uint64_t otherwise,
                                     std::uint64_t min, std::uint64_t max) {
    const std::string* const text = find(name);
    if (text == nullptr)
        return otherwise;
    std::uint64_t value = 0;
    const char* const end = text->data() + text->size();
    const auto [rest, failure] = std::from_chars(text->data(), end, value);
    if (failure == std::errc{} && rest == end && value >= min && value <= max)
        return value;
    refuse(name, *text, fmt::format("{} to {}", min, max));
    return otherwise;
}

std::chrono::nanoseconds ParameterReader::time(const std::string& name,
                                               std::chrono::nanoseconds otherwise,
                                               std::chrono::nanoseconds max) {
    const std::string* const text = find(name);
    if (text == nullptr)
        return otherwise;
    const auto value = parse_time(*text);
    if (value && value.value() <= max)
        return value.value();
    refuse(name, *text, fmt::format("0 to {}, such as 300us", time_to_string(max)));
    return otherwise;
}

bool ParameterReader::yes_no(const std::string& name, bool otherwise) {
    const std::string* const text = find(name);
    if (text == nullptr)
        return otherwise;
    if (*text == "yes" || *text == "no")
        return *text == "yes";
    refuse(name, *text, "yes or no");
    return otherwise;
}

std::string ParameterReader::choice(const std::string& name, const std::string& otherwise,
                                    std::span<const std::string_view> words) {
    const std::string* const text = find(name);
    if (text == nullptr)
        return otherwise;
    if (std::find(words.begin(), words.end(), *text) != words.end())
        return *text;
    refuse(name, *text, fmt::format("one of {}", fmt::join(words, ", ")));
    return otherwise;
}

std::optional<std::string> ParameterReader::text(const std::string& name) {
    const std::string* const text = find(name);
    return text == nullptr ? std::nullopt : std::optional(*text);
}

Result<void> ParameterReader::check() const {
    for (const auto& [name, text] : spec_.parameters) {
        if (known_.count(name) != 0)
            continue;
        return Error{fmt::format("strategy {} has no parameter \"{}\"; it has {}", spec_.name, name,
                                 fmt::join(known_, ", "))};
    }
    if (wrong_)
        return *wrong_;
    return {};
}

}  // namespace mercury::replay
