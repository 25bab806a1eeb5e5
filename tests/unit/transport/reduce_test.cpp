// SPDX-License-Identifier: MIT
//
// Every implementation that this processor can run, against the definition of the formats.
#include "transport/reduce.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "reference.hpp"
#include "values.hpp"

using namespace mercury::transport;
using namespace mercury::transport::test;

namespace {

constexpr std::byte untouched{0xa5};

struct Tested {
    ElementType type;
    Loops loops;
};

std::string name_of(const Tested& tested) {
    return std::string(to_string(tested.type)) + ", " + std::string(tested.loops.instructions);
}

std::vector<Tested> all_loops(std::initializer_list<ElementType> types) {
    std::vector<Tested> all;
    for (const ElementType type : types)
        for (const Loops& one : loops(type))
            all.push_back({type, one});
    return all;
}

std::vector<Tested> all_loops() {
    return all_loops({ElementType::f32, ElementType::f16, ElementType::bf16});
}

std::vector<Bits> narrowed(const Tested& tested, std::vector<float> values, float factor = 1) {
    std::vector<std::byte> wire(values.size() * size_of(tested.type));
    tested.loops.finish(values.data(), factor, wire.data(), values.size());
    std::vector<Bits> bits(values.size());
    for (std::size_t i = 0; i < bits.size(); ++i)
        bits[i] = load(tested.type, wire, i);
    return bits;
}

/// The first value that is not narrowed as it should be, as text; or nothing.
std::string first_mistake(const Tested& tested, const std::vector<float>& values,
                          float factor = 1) {
    const std::vector<Bits> found = narrowed(tested, values, factor);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float product = values[i] * factor;
        const Bits expected = nearest(tested.type, product);
        const bool right =
            std::isnan(product) ? is_quiet_nan(tested.type, found[i]) : found[i] == expected;
        if (!right) {
            return Catch::StringMaker<float>::convert(values[i]) + " times " +
                   Catch::StringMaker<float>::convert(factor) + " becomes " +
                   std::to_string(found[i]) + " instead of " + std::to_string(expected);
        }
    }
    return {};
}

bool same(float a, float b) {
    return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b) || (std::isnan(a) && std::isnan(b));
}

/// Both signs of a 16-bit element's neighbourhood: the point half-way to the next larger one,
/// which f32 holds exactly, and what lies directly beside it.
void add_halfway(std::vector<float>& values, ElementType type, Bits bits) {
    // Above the largest number, infinity stands for what would come next.
    const double lower = value_of(type, bits);
    const double upper = value_of(type, bits + 1);
    const double step = std::isinf(upper) ? lower - value_of(type, bits - 1) : upper - lower;
    const auto half = static_cast<float>(lower + step / 2);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float value : {std::nextafter(half, 0.0F), half, std::nextafter(half, infinity)}) {
        values.push_back(value);
        values.push_back(-value);
    }
}

}  // namespace

TEST_CASE("there are loops for every type, the portable ones last", "[reduce]") {
    for (const auto type : {ElementType::f32, ElementType::f16, ElementType::bf16}) {
        REQUIRE_FALSE(loops(type).empty());
        CHECK(loops(type).back().instructions == "portable");
    }
}

TEST_CASE("every 16-bit pattern is widened exactly, and comes back", "[reduce]") {
    for (const Tested& tested : all_loops({ElementType::f16, ElementType::bf16})) {
        INFO(name_of(tested));
        std::vector<std::byte> wire(patterns * 2);
        for (Bits bits = 0; bits < patterns; ++bits)
            save(tested.type, bits, wire, bits);
        std::vector<float> values(patterns);
        tested.loops.store(values.data(), wire.data(), patterns);
        const std::vector<Bits> back = narrowed(tested, values);

        for (Bits bits = 0; bits < patterns; ++bits) {
            const auto exact = static_cast<float>(value_of(tested.type, bits));
            if (!same(values[bits], exact))
                FAIL(bits << " is widened to " << values[bits] << " instead of " << exact);
            const bool right =
                std::isnan(exact) ? is_quiet_nan(tested.type, back[bits]) : back[bits] == bits;
            if (!right)
                FAIL(bits << " comes back as " << back[bits]);
        }
    }
}

TEST_CASE("the reference knows the formats", "[reduce]") {
    CHECK(value_of(ElementType::f16, 0x3c00) == 1);
    CHECK(value_of(ElementType::f16, 0xc000) == -2);
    CHECK(value_of(ElementType::f16, 0x7bff) == 65504);
    CHECK(value_of(ElementType::f16, 0x0001) == 0x1p-24);
    CHECK(value_of(ElementType::f16, 0x0400) == 0x1p-14);
    CHECK(std::isinf(value_of(ElementType::f16, 0x7c00)));
    CHECK(is_nan(ElementType::f16, 0x7c01));
    CHECK(value_of(ElementType::bf16, 0x3f80) == 1);
    CHECK(value_of(ElementType::bf16, 0x0001) == 0x1p-133);
    CHECK(nearest(ElementType::f16, 65519.99) == 0x7bff);
    CHECK(nearest(ElementType::f16, 65520.0) == 0x7c00);
    CHECK(nearest(ElementType::f16, 1 + 0x1p-11) == 0x3c00);
    CHECK(nearest(ElementType::f16, 1 + 3 * 0x1p-11) == 0x3c02);
    CHECK(nearest(ElementType::f16, -0x1p-25) == 0x8000);
    CHECK(nearest(ElementType::f16, 0x1.8p-24) == 0x0002);
    for (Bits high = 0; high < patterns; ++high) {
        const Bits bits = high << 16 | (high * 40503 & 0xffff);
        const auto value = std::bit_cast<float>(bits);
        if (!same(static_cast<float>(value_of(ElementType::f32, bits)), value) ||
            (!std::isnan(value) && nearest(ElementType::f32, value) != bits))
            FAIL("f32 " << bits);
    }
}

TEST_CASE("half-way values go to the even neighbour, and all else to the nearest", "[reduce]") {
    for (const Tested& tested : all_loops({ElementType::f16, ElementType::bf16})) {
        INFO(name_of(tested));
        std::vector<float> values;
        for (Bits bits = 0; std::isfinite(value_of(tested.type, bits)); ++bits)
            add_halfway(values, tested.type, bits);
        CHECK(first_mistake(tested, values) == "");
    }
}

TEST_CASE("f32 of all magnitudes is narrowed to the nearest element", "[reduce]") {
    // All upper halves, and lower halves around all points where a cut of 13 or 16 bits is a tie.
    for (const Tested& tested : all_loops({ElementType::f16, ElementType::bf16})) {
        INFO(name_of(tested));
        for (Bits eighth = 0; eighth < 8; ++eighth) {
            for (const Bits rest : {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x1fffU}) {
                std::vector<float> values(patterns);
                for (Bits high = 0; high < patterns; ++high)
                    values[high] = std::bit_cast<float>(high << 16 | eighth << 13 | rest);
                REQUIRE(first_mistake(tested, values) == "");
            }
        }
    }
}

TEST_CASE("a factor is multiplied in f32, and the product is rounded by itself", "[reduce]") {
    const float factor = GENERATE(1.0F / 3, 0.1F, 0.5F, 1.0F / 4096, 3.0F);
    // Down to far below the smallest element: a product and a sum in one operation would show.
    const Values source(ElementType::f32, Kind::any, 7);
    for (const Tested& tested : all_loops({ElementType::f16, ElementType::bf16})) {
        INFO(name_of(tested) << " times " << factor);
        std::vector<float> values;
        for (std::uint64_t i = 0; i < 200'000; ++i) {
            const auto any = std::bit_cast<float>(source.element(0, i));
            values.push_back(any);
            if (std::isnormal(any))  // 1 to 2^-27, with the same sign and fraction
                values.push_back(std::ldexp(any, -std::ilogb(any) - static_cast<int>(i % 28)));
        }
        CHECK(first_mistake(tested, values, factor) == "");
    }
}

TEST_CASE("any length at any address is stored, added and finished, and nothing beside it",
          "[reduce]") {
    constexpr std::size_t margin = 3;
    for (const Tested& tested : all_loops()) {
        const std::size_t size = size_of(tested.type);
        const Values source(tested.type, Kind::any, 11);
        for (std::size_t n = 0; n <= 70; ++n) {
            const std::size_t offset = n % 5;
            INFO(name_of(tested) << ": " << n << " elements, " << offset << " bytes off");
            const auto elements = source.bytes(n, 0, n * size);
            // A block of exactly this size, for the address sanitizer.
            std::vector<std::byte> wire(offset + elements.size());
            std::ranges::copy(elements, wire.begin() + static_cast<std::ptrdiff_t>(offset));

            std::vector<float> sums(n + 2 * margin, -1.5F);
            const auto check = [&](auto&& expected) {
                for (std::size_t i = 0; i < sums.size(); ++i) {
                    const bool inside = i >= margin && i < margin + n;
                    const float value = inside ? expected(i - margin) : -1.5F;
                    if (!same(sums[i], value))
                        FAIL("sum " << i << " is " << sums[i] << " instead of " << value);
                }
            };
            const auto element = [&](std::size_t i) {
                return static_cast<float>(value_of(tested.type, load(tested.type, elements, i)));
            };
            tested.loops.store(sums.data() + margin, wire.data() + offset, n);
            check(element);

            const auto start = [](std::size_t i) { return 0.3F * static_cast<float>(i); };
            for (std::size_t i = 0; i < n; ++i)
                sums[margin + i] = start(i);
            tested.loops.add(sums.data() + margin, wire.data() + offset, n);
            check([&](std::size_t i) { return start(i) + element(i); });

            for (std::size_t i = 0; i < n; ++i)
                sums[margin + i] = start(i);
            std::vector<std::byte> result(offset + n * size + 1, untouched);
            const bool in_place = tested.type == ElementType::f32;
            auto* const place = in_place ? reinterpret_cast<std::byte*>(sums.data() + margin)
                                         : result.data() + offset;
            tested.loops.finish(sums.data() + margin, 0.7F, place, n);
            if (in_place) {
                check([&](std::size_t i) { return start(i) * 0.7F; });
                continue;
            }
            check(start);
            for (std::size_t i = 0; i < n; ++i) {
                const Bits bits = load(tested.type, std::span(result).subspan(offset), i);
                CHECK(bits == nearest(tested.type, start(i) * 0.7F));
            }
            CHECK(std::count(result.begin(), result.end(), untouched) >=
                  static_cast<std::ptrdiff_t>(offset + 1));
            CHECK(std::all_of(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(offset),
                              [](std::byte byte) { return byte == untouched; }));
            CHECK(result.back() == untouched);
        }
    }
}
