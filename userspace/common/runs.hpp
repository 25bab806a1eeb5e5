// SPDX-License-Identifier: MIT
//
// Small whole numbers and runs of them, such as ports, bands and jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace mercury {

/// A whole number of 0 to 65535, followed by nothing.
std::optional<std::uint16_t> parse_number(std::string_view text);

/// "3" or "3-5": the first and the last one, in this order.
std::optional<std::pair<std::uint16_t, std::uint16_t>> parse_run(std::string_view text);

}  // namespace mercury
