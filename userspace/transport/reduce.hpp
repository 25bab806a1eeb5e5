// SPDX-License-Identifier: MIT
//
// The loops that add up wire elements in f32. A wire element is little-endian and may lie at any
// address.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "transport/element.hpp"

namespace mercury::transport {

/// For one element type, written for one instruction set.
///
/// All sets give the same bits: elements become f32 exactly, f32 becomes f16 or bf16 by rounding
/// to the nearest, ties to even, with subnormals and infinities as IEEE 754 has them. A NaN stays
/// one; which, among several, is open.
struct Loops {
    std::string_view instructions;
    /// sums[i] = wire[i]
    void (*store)(float* sums, const std::byte* wire, std::size_t elements);
    /// sums[i] += wire[i]
    void (*add)(float* sums, const std::byte* wire, std::size_t elements);
    /// result[i] = sums[i] * factor. For f32 this works in place: RESULT is SUMS.
    void (*finish)(float* sums, float factor, std::byte* result, std::size_t elements);
};

/// Those that this processor can run, the fastest first; never empty.
std::span<const Loops> loops(ElementType type);

}  // namespace mercury::transport
