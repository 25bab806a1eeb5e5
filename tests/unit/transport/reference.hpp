// SPDX-License-Identifier: MIT
//
// What the bits of an element mean and how a number becomes one, straight from the definition of
// the formats, in double arithmetic: slow, and written without a look at transport/reduce.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/element.hpp"

namespace mercury::transport::test {

/// An element in the low bits.
using Bits = std::uint32_t;

/// Exact, since double holds all of them.
double value_of(ElementType type, Bits bits);
bool is_nan(ElementType type, Bits bits);
/// NaN whose first bit of the fraction is set.
bool is_quiet_nan(ElementType type, Bits bits);

/// The nearest element, of two equally near the one whose last bit is 0.
Bits nearest(ElementType type, double value);
inline Bits nearest(ElementType type, float value) {
    return nearest(type, static_cast<double>(value));
}

/// How many patterns there are of 16-bit elements.
constexpr Bits patterns = 0x10000;

Bits load(ElementType type, std::span<const std::byte> wire, std::size_t index = 0);
void save(ElementType type, Bits bits, std::span<std::byte> wire, std::size_t index = 0);

}  // namespace mercury::transport::test
