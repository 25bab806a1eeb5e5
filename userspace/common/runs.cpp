// SPDX-License-Identifier: MIT
#include "common/runs.hpp"

#include <charconv>

namespace mercury {

std::optional<std::uint16_t> parse_number(std::string_view text) {
    std::uint16_t number = 0;
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure != std::errc{} || rest != text.data() + text.size())
        return {};
    return number;
}

std::optional<std::pair<std::uint16_t, std::uint16_t>> parse_run(std::string_view text) {
    const auto dash = text.find('-');
    const auto first = parse_number(text.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(text.substr(dash + 1));
    if (!first || !last || *first > *last)
        return {};
    return std::pair(*first, *last);
}

}  // namespace mercury
