// SPDX-License-Identifier: MIT
//
// What a tensor is made of, and how the tensors of several workers become one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../common/result.hpp"

namespace mercury::transport {

enum class ElementType : std::uint8_t { f32, f16, bf16 };

enum class Reduction : std::uint8_t { sum, mean };

/// In which order the workers' elements are added up.
enum class SumOrder : std::uint8_t {
    arrival,  // as they come: nobody waits, the last bits of an f32 sum may differ from run to run
    rank,     // worker 0 + worker 1 + ...: the same bits in every run
};

/// Bytes on the wire.
constexpr std::size_t size_of(ElementType type) {
    return type == ElementType::f32 ? 4 : 2;
}

std::string_view to_string(ElementType type);
std::string_view to_string(Reduction reduction);
std::string_view to_string(SumOrder order);

/// What to_string() writes.
Result<ElementType> parse_element_type(std::string_view text);
Result<Reduction> parse_reduction(std::string_view text);
Result<SumOrder> parse_sum_order(std::string_view text);

}  // namespace mercury::transport
