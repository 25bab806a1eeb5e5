// SPDX-License-Identifier: MIT
//
// Plain loops over one element at a time, which the compiler turns into vectors (with -O3; see
// CMakeLists.txt), once for the processors that everybody has and once for AVX2. Only f16 on AVX2
// is written out, for its conversions in hardware: 3 to 9 times as fast.
//
// The set is chosen by a table and not by target_clones: its resolvers run before ThreadSanitizer
// is ready for them, and the program dies before main().
#include "transport/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace mercury::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "elements travel as they are in memory");

// So that it takes on the instruction set of the function it is in.
#define MERCURY_INLINE [[gnu::always_inline]] static inline

struct F32 {
    using Wire = float;
    MERCURY_INLINE float widen(float wire) { return wire; }
};

struct Bf16 {
    using Wire = std::uint16_t;
    MERCURY_INLINE float widen(std::uint16_t wire) {
        return std::bit_cast<float>(std::uint32_t{wire} << 16);
    }
    MERCURY_INLINE std::uint16_t narrow(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        // A carry out of the fraction goes into the exponent, as it should, up to infinity.
        const std::uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
        const std::uint32_t quiet = bits | 0x400000;
        return static_cast<std::uint16_t>((value == value ? rounded : quiet) >> 16);
    }
};

#if defined(__ARM_FP16_FORMAT_IEEE)

struct F16 {
    using Wire = __fp16;
    MERCURY_INLINE float widen(__fp16 wire) { return wire; }
    MERCURY_INLINE __fp16 narrow(float value) { return static_cast<__fp16>(value); }
};

#else

struct F16 {
    using Wire = std::uint16_t;

    MERCURY_INLINE float widen(std::uint16_t wire) {
        const std::uint32_t sign = (wire & 0x8000U) << 16;
        const std::int32_t magnitude = wire & 0x7fff;
        // f32 has 13 more bits of fraction, and an exponent bias that is higher by 112.
        const float value =
            std::bit_cast<float>(static_cast<std::uint32_t>(magnitude) << 13) * 0x1p112F;
        const std::uint32_t infinite = magnitude >= 0x7c00 ? 0x7f800000 : 0;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | infinite | sign);
    }

    // Without branches: every case is computed, and one is chosen.
    MERCURY_INLINE std::uint16_t narrow(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t sign = bits >> 16 & 0x8000;
        const auto magnitude = static_cast<std::int32_t>(bits & 0x7fffffff);

        constexpr std::int32_t rebias = 112 << 23;
        constexpr std::int32_t infinity = (16 + 127) << 23;  // 2^16, and all above 65519
        const std::int32_t finite = std::min(magnitude, infinity);
        const std::int32_t normal = (finite - rebias + 0xfff + (finite >> 13 & 1)) >> 13;

        // The last bit of 0.5 is worth the last bit of an f16 below 2^-14: adding rounds.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        const std::int32_t subnormal =
            std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(0.5F);

        const std::int32_t quiet_nan = 0x7e00 | (magnitude >> 13 & 0x3ff);

        std::int32_t result = magnitude < rebias + (1 << 23) ? subnormal : normal;
        result = magnitude > 0x7f800000 ? quiet_nan : result;
        return static_cast<std::uint16_t>(static_cast<std::uint32_t>(result) | sign);
    }
};

#endif

template <typename Element>
MERCURY_INLINE float load(const std::byte* wire, std::size_t i) {
    typename Element::Wire element;
    std::memcpy(&element, wire + i * sizeof element, sizeof element);
    return Element::widen(element);
}

template <typename Element>
MERCURY_INLINE void save(float value, std::byte* result, std::size_t i) {
    const typename Element::Wire element = Element::narrow(value);
    std::memcpy(result + i * sizeof element, &element, sizeof element);
}

// The loops for one instruction set, in a namespace of its own.
#define MERCURY_LOOPS(SET, TARGET)                                                               \
    namespace SET {                                                                              \
    template <typename Element>                                                                  \
    TARGET void store(float* __restrict sums, const std::byte* __restrict wire, std::size_t n) { \
        for (std::size_t i = 0; i < n; ++i)                                                      \
            sums[i] = load<Element>(wire, i);                                                    \
    }                                                                                            \
    template <typename Element>                                                                  \
    TARGET void add(float* __restrict sums, const std::byte* __restrict wire, std::size_t n) {   \
        for (std::size_t i = 0; i < n; ++i)                                                      \
            sums[i] += load<Element>(wire, i);                                                   \
    }                                                                                            \
    template <typename Element>                                                                  \
    TARGET void narrow(float* __restrict sums, float factor, std::byte* __restrict result,       \
                       std::size_t n) {                                                          \
        for (std::size_t i = 0; i < n; ++i)                                                      \
            save<Element>(sums[i] * factor, result, i);                                          \
    }                                                                                            \
    TARGET void scale(float* sums, float factor, std::byte* /*result*/, std::size_t n) {         \
        for (std::size_t i = 0; i < n; ++i)                                                      \
            sums[i] *= factor;                                                                   \
    }                                                                                            \
    }

MERCURY_LOOPS(portable, )

constexpr Loops portable_f32{"portable", portable::store<F32>, portable::add<F32>, portable::scale};
constexpr Loops portable_f16{"portable", portable::store<F16>, portable::add<F16>,
                             portable::narrow<F16>};
constexpr Loops portable_bf16{"portable", portable::store<Bf16>, portable::add<Bf16>,
                              portable::narrow<Bf16>};

#if defined(__x86_64__)

MERCURY_LOOPS(avx2, [[gnu::target("avx2")]])

#define MERCURY_F16C [[gnu::target("avx2,f16c")]]

namespace f16c {

constexpr std::size_t lanes = 8;

MERCURY_F16C inline __m256 load_lanes(const std::byte* wire) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(wire)));
}

MERCURY_F16C void store(float* sums, const std::byte* wire, std::size_t n) {
    std::size_t i = 0;
    for (; n - i >= lanes; i += lanes)
        _mm256_storeu_ps(sums + i, load_lanes(wire + 2 * i));
    portable::store<F16>(sums + i, wire + 2 * i, n - i);
}

MERCURY_F16C void add(float* sums, const std::byte* wire, std::size_t n) {
    std::size_t i = 0;
    for (; n - i >= lanes; i += lanes) {
        const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(sums + i), load_lanes(wire + 2 * i));
        _mm256_storeu_ps(sums + i, sum);
    }
    portable::add<F16>(sums + i, wire + 2 * i, n - i);
}

MERCURY_F16C void narrow(float* sums, float factor, std::byte* result, std::size_t n) {
    std::size_t i = 0;
    for (; n - i >= lanes; i += lanes) {
        const __m256 value = _mm256_mul_ps(_mm256_loadu_ps(sums + i), _mm256_set1_ps(factor));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(result + 2 * i),
                         _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
    portable::narrow<F16>(sums + i, factor, result + 2 * i, n - i);
}

}  // namespace f16c

// clang does not know this name in __builtin_cpu_supports.
bool has_f16c() {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Sets that this processor lacks, before the portable one.
std::size_t lacking() {
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && has_f16c();
    return has_avx2 ? 0 : 1;
}

constexpr std::array f32_loops{Loops{"avx2", avx2::store<F32>, avx2::add<F32>, avx2::scale},
                               portable_f32};
constexpr std::array f16_loops{Loops{"avx2", f16c::store, f16c::add, f16c::narrow}, portable_f16};
constexpr std::array bf16_loops{
    Loops{"avx2", avx2::store<Bf16>, avx2::add<Bf16>, avx2::narrow<Bf16>}, portable_bf16};

#else

std::size_t lacking() {
    return 0;
}

constexpr std::array f32_loops{portable_f32};
constexpr std::array f16_loops{portable_f16};
constexpr std::array bf16_loops{portable_bf16};

#endif

std::span<const Loops> all_loops(ElementType type) {
    switch (type) {
        case ElementType::f32:
            return f32_loops;
        case ElementType::f16:
            return f16_loops;
        case ElementType::bf16:
            return bf16_loops;
    }
    return {};
}

}  // namespace

std::span<const Loops> loops(ElementType type) {
    return all_loops(type).subspan(lacking());
}

}  // namespace mercury::transport
