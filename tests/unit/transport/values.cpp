// SPDX-License-Identifier: MIT
#include "values.hpp"

#include <cmath>

namespace mercury::transport::test {
namespace {

// SplitMix64.
std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

}  // namespace

Bits Values::element(std::size_t worker, std::uint64_t index) const {
    const std::uint64_t random = mix(mix(seed_ + worker) + index);
    switch (kind_) {
        case Kind::any:
            return static_cast<Bits>(random >> (64 - 8 * size_of(type_)));
        case Kind::finite: {
            const double fraction = 1 + std::ldexp(static_cast<double>(random >> 32), -32);
            const double magnitude = std::ldexp(fraction, static_cast<int>(random % 16) - 12);
            return nearest(type_, random >> 16 & 1 ? magnitude : -magnitude);
        }
        case Kind::integers:
            return nearest(type_, static_cast<double>(random % 17) - 8);
    }
    return 0;
}

std::vector<std::byte> Values::bytes(std::size_t worker, std::uint64_t position,
                                     std::size_t n) const {
    const std::size_t size = size_of(type_);
    const std::uint64_t first = position / size;
    const std::uint64_t end = (position + n + size - 1) / size;
    std::vector<std::byte> whole((end - first) * size);
    for (std::uint64_t index = first; index < end; ++index)
        save(type_, element(worker, index), whole, index - first);
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(position % size);
    return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

}  // namespace mercury::transport::test
