// SPDX-License-Identifier: MIT
#include "reference.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace mercury::transport::test {
namespace {

struct Format {
    int fraction;      // bits
    int exponent_max;  // of finite numbers; the smallest of normal ones is 1 - exponent_max
};

Format format_of(ElementType type) {
    switch (type) {
        case ElementType::f32:
            return {23, 127};
        case ElementType::f16:
            return {10, 15};
        case ElementType::bf16:
            return {7, 127};
    }
    return {};
}

struct Fields {
    bool negative;
    int exponent;  // as it is stored
    Bits fraction;
};

Fields fields_of(ElementType type, Bits bits) {
    const Format format = format_of(type);
    const int exponents = 2 * format.exponent_max + 2;
    return {bits >> (8 * size_of(type) - 1) != 0,
            static_cast<int>(bits >> format.fraction) % exponents,
            bits % (Bits{1} << format.fraction)};
}

}  // namespace

double value_of(ElementType type, Bits bits) {
    const Format format = format_of(type);
    const Fields fields = fields_of(type, bits);
    const double fraction = std::ldexp(fields.fraction, -format.fraction);
    double magnitude = 0;
    if (fields.exponent == 2 * format.exponent_max + 1) {
        magnitude = fields.fraction == 0 ? std::numeric_limits<double>::infinity()
                                         : std::numeric_limits<double>::quiet_NaN();
    } else if (fields.exponent == 0) {
        magnitude = std::ldexp(fraction, 1 - format.exponent_max);
    } else {
        magnitude = std::ldexp(1 + fraction, fields.exponent - format.exponent_max);
    }
    return fields.negative ? -magnitude : magnitude;
}

bool is_nan(ElementType type, Bits bits) {
    return std::isnan(value_of(type, bits));
}

bool is_quiet_nan(ElementType type, Bits bits) {
    return is_nan(type, bits) &&
           fields_of(type, bits).fraction >> (format_of(type).fraction - 1) != 0;
}

Bits nearest(ElementType type, double value) {
    const Format format = format_of(type);
    const Bits sign = Bits{std::signbit(value)} << (8 * size_of(type) - 1);
    const Bits infinity = static_cast<Bits>(2 * format.exponent_max + 1) << format.fraction;
    if (std::isnan(value))
        return sign | infinity | Bits{1} << (format.fraction - 1);
    const double magnitude = std::fabs(value);
    if (magnitude == 0)
        return sign;
    if (std::isinf(magnitude))
        return sign | infinity;

    const int exponent = std::max(std::ilogb(magnitude), 1 - format.exponent_max);
    // In units of the last bit; a division by a power of two is exact, and nearbyint takes ties
    // to the even one.
    const double units = std::nearbyint(std::ldexp(magnitude, format.fraction - exponent));
    const double rounded = std::ldexp(units, exponent - format.fraction);
    if (rounded >= std::ldexp(1.0, format.exponent_max + 1))
        return sign | infinity;
    const auto whole = static_cast<Bits>(units);
    const Bits one = Bits{1} << format.fraction;
    if (whole < one)
        return sign | whole;  // subnormal
    // Rounding up may have made it twice ONE: then the next exponent, and no fraction.
    const auto stored = static_cast<Bits>(exponent + format.exponent_max);
    return sign | ((stored << format.fraction) + (whole - one));
}

Bits load(ElementType type, std::span<const std::byte> wire, std::size_t index) {
    Bits bits = 0;
    std::memcpy(&bits, &wire[index * size_of(type)], size_of(type));
    return bits;
}

void save(ElementType type, Bits bits, std::span<std::byte> wire, std::size_t index) {
    std::memcpy(&wire[index * size_of(type)], &bits, size_of(type));
}

}  // namespace mercury::transport::test
