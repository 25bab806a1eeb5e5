// SPDX-License-Identifier: MIT
#include "transport/element.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mercury::transport {
namespace {

// Each by its value.
constexpr std::array<std::string_view, 3> element_types{"f32", "f16", "bf16"};
constexpr std::array<std::string_view, 2> reductions{"sum", "mean"};
constexpr std::array<std::string_view, 2> sum_orders{"arrival", "rank"};

template <typename Enum, std::size_t n>
Result<Enum> parse(std::string_view what, const std::array<std::string_view, n>& names,
                   std::string_view text) {
    const auto* const found = std::find(names.begin(), names.end(), text);
    if (found == names.end()) {
        return Error{fmt::format("{} \"{}\" is none of {}", what, text, fmt::join(names, ", "))};
    }
    return static_cast<Enum>(found - names.begin());
}

}  // namespace

std::string_view to_string(ElementType type) {
    return element_types.at(static_cast<std::size_t>(type));
}

std::string_view to_string(Reduction reduction) {
    return reductions.at(static_cast<std::size_t>(reduction));
}

std::string_view to_string(SumOrder order) {
    return sum_orders.at(static_cast<std::size_t>(order));
}

Result<ElementType> parse_element_type(std::string_view text) {
    return parse<ElementType>("element type", element_types, text);
}

Result<Reduction> parse_reduction(std::string_view text) {
    return parse<Reduction>("reduction", reductions, text);
}

Result<SumOrder> parse_sum_order(std::string_view text) {
    return parse<SumOrder>("sum order", sum_orders, text);
}

}  // namespace mercury::transport
