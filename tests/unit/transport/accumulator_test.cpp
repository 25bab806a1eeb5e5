// SPDX-License-Identifier: MIT
#include "transport/accumulator.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>

#include "reference.hpp"

using namespace mercury::transport;
using namespace mercury::transport::test;
using Catch::Matchers::Contains;

namespace {

std::vector<std::byte> encode(ElementType type, const std::vector<double>& values) {
    std::vector<std::byte> wire(values.size() * size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i)
        save(type, nearest(type, values[i]), wire, i);
    return wire;
}

std::vector<double> decode(ElementType type, std::span<const std::byte> wire) {
    std::vector<double> values(wire.size() / size_of(type));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = value_of(type, load(type, wire, i));
    return values;
}

/// Takes all that is ready and decodes it.
std::vector<double> take(Accumulator& sum, ElementType type, std::size_t worker) {
    const auto ready = sum.ready(worker);
    const auto values = decode(type, ready);
    sum.take(worker, ready.size());
    return values;
}

using Numbers = std::vector<double>;

}  // namespace

TEST_CASE("what all workers have pushed is finished", "[accumulator]") {
    const auto type = GENERATE(ElementType::f32, ElementType::f16, ElementType::bf16);
    const std::size_t size = size_of(type);
    Accumulator sum(type, Reduction::sum, SumOrder::arrival, 4, 2);
    CHECK(sum.bytes() == 4 * size);
    CHECK(sum.workers() == 2);
    const auto first = encode(type, {1, 2, 3, 4});
    const auto second = encode(type, {10, 20, 30, 40});

    sum.add(1, second);
    CHECK(sum.ready(0).empty());
    sum.add(0, std::span(first).first(3 * size));
    CHECK(sum.finished() == 3 * size);
    CHECK(take(sum, type, 0) == Numbers{11, 22, 33});
    sum.add(0, std::span(first).last(size));
    CHECK(take(sum, type, 0) == Numbers{44});
    CHECK(take(sum, type, 1) == Numbers{11, 22, 33, 44});
    CHECK(sum.taken() == sum.bytes());
}

TEST_CASE("the mean is the sum divided by the number of workers", "[accumulator]") {
    const auto type = GENERATE(ElementType::f32, ElementType::f16, ElementType::bf16);
    Accumulator sum(type, Reduction::mean, SumOrder::arrival, 2, 4);
    for (std::size_t worker = 0; worker < 4; ++worker)
        sum.add(worker, encode(type, {static_cast<double>(worker), 100}));
    CHECK(take(sum, type, 2) == Numbers{1.5, 100});
}

TEST_CASE("f16 is summed in f32: no overflow and no rounding on the way", "[accumulator]") {
    Accumulator mean(ElementType::f16, Reduction::mean, SumOrder::arrival, 1, 4);
    Accumulator sum(ElementType::f16, Reduction::sum, SumOrder::arrival, 1, 3);
    for (std::size_t worker = 0; worker < 4; ++worker)
        mean.add(worker, encode(ElementType::f16, {60000}));
    CHECK(take(mean, ElementType::f16, 0) == Numbers{60000});
    // 2048 + 1 is no f16, and 2048 + 1 + 1 is one.
    sum.add(0, encode(ElementType::f16, {2048}));
    sum.add(1, encode(ElementType::f16, {1}));
    sum.add(2, encode(ElementType::f16, {1}));
    CHECK(take(sum, ElementType::f16, 0) == Numbers{2050});
}

TEST_CASE("an element may arrive byte by byte", "[accumulator]") {
    const auto type = GENERATE(ElementType::f32, ElementType::f16, ElementType::bf16);
    const std::size_t size = size_of(type);
    Accumulator sum(type, Reduction::sum, SumOrder::arrival, 2, 2);
    const auto wire = encode(type, {1.5, -3});
    for (std::size_t i = 0; i < wire.size(); ++i) {
        for (std::size_t worker = 0; worker < 2; ++worker) {
            CHECK(sum.room(worker) == wire.size() - i);
            sum.add(worker, std::span(wire).subspan(i, 1));
            CHECK(sum.pushed(worker) == (i + 1) / size * size);
        }
        CHECK(sum.ready(0).size() == (i + 1) / size * size);
    }
    CHECK(take(sum, type, 0) == Numbers{3, -6});
}

TEST_CASE("a worker is at most a round ahead of the slowest one's pulls", "[accumulator]") {
    constexpr auto type = ElementType::f32;
    Accumulator sum(type, Reduction::sum, SumOrder::arrival, 3, 2);
    const auto wire = encode(type, {1, 2, 3});
    sum.add(0, wire);
    CHECK(sum.room(0) == 0);
    sum.add(1, wire);
    CHECK(sum.room(0) == 0);
    CHECK(take(sum, type, 0) == Numbers{2, 4, 6});
    CHECK(sum.room(0) == 0);  // worker 1 still needs the memory
    sum.take(1, 5);
    CHECK(sum.room(0) == 4);  // one element is free, and a quarter of the next
    sum.take(1, 3);
    CHECK(sum.room(0) == 8);
    sum.add(0, std::span(wire).first(8));
    CHECK(decode(type, sum.ready(1)) == Numbers{6});  // of the first round
    sum.take(1, 4);
    CHECK(sum.ready(1).empty());
    sum.add(1, wire);
    CHECK(take(sum, type, 1) == Numbers{2, 4});
}

TEST_CASE("what is ready and what there is room for end with a round", "[accumulator]") {
    constexpr auto type = ElementType::f32;
    Accumulator sum(type, Reduction::sum, SumOrder::arrival, 2, 1);
    const auto wire = encode(type, {1, 2});
    sum.add(0, wire);
    sum.take(0, 4);
    CHECK(sum.room(0) == 4);
    sum.add(0, std::span(wire).first(4));
    CHECK(decode(type, sum.ready(0)) == Numbers{2});
    sum.take(0, 4);
    CHECK(take(sum, type, 0) == Numbers{1});
    CHECK(sum.room(0) == 4);  // to the end of the round, though 8 bytes of memory are free
}

TEST_CASE("in rank order a worker waits for the one before it", "[accumulator]") {
    constexpr auto type = ElementType::f32;
    Accumulator sum(type, Reduction::sum, SumOrder::rank, 2, 3);
    CHECK(sum.room(0) == 8);
    CHECK(sum.room(1) == 0);
    const auto wire = encode(type, {1, 2});
    sum.add(0, std::span(wire).first(7));
    CHECK(sum.room(1) == 4);
    CHECK(sum.room(2) == 0);
    sum.add(1, std::span(wire).first(4));
    CHECK(sum.room(2) == 4);
    sum.add(2, std::span(wire).first(4));
    CHECK(take(sum, type, 0) == Numbers{3});
}

TEST_CASE("the first worker in an f32 sum may receive into it", "[accumulator]") {
    constexpr auto type = ElementType::f32;
    Accumulator sum(type, Reduction::mean, SumOrder::arrival, 3, 2);
    const auto wire = encode(type, {1, 2, 3});
    auto place = sum.place(1);
    REQUIRE(place.size() == 12);
    std::memcpy(place.data(), wire.data(), 10);
    sum.add(1, place.first(10));
    CHECK(sum.place(1).empty());  // within an element
    CHECK(sum.place(0).empty());  // not the first
    sum.add(1, std::span(wire).last(2));
    sum.add(0, wire);
    CHECK(take(sum, type, 0) == Numbers{1, 2, 3});
    CHECK(sum.place(0).empty());  // no room
    sum.take(1, 9);
    place = sum.place(0);
    REQUIRE(place.size() == 8);
    std::memcpy(place.data(), wire.data(), 8);
    sum.add(0, place);
    CHECK(std::ranges::equal(sum.ready(1), std::span(wire).last(3)));
    sum.take(1, 3);
    sum.add(1, wire);
    CHECK(take(sum, type, 1) == Numbers{1, 2});

    Accumulator halves(ElementType::bf16, Reduction::sum, SumOrder::arrival, 3, 2);
    CHECK(halves.place(0).empty());
}

TEST_CASE("too much is refused and changes nothing", "[accumulator]") {
    constexpr auto type = ElementType::f32;
    Accumulator sum(type, Reduction::sum, SumOrder::arrival, 2, 2);
    const auto wire = encode(type, {1, 2, 3});
    sum.add(0, std::span(wire).first(3));
    CHECK_THROWS_WITH(sum.add(0, std::span(wire).first(6)),
                      Contains("worker 0 adds 6 bytes") && Contains("room for 5"));
    CHECK_THROWS_WITH(sum.take(1, 1), Contains("worker 1 takes 1 bytes") && Contains("0 are"));
    sum.add(0, std::span(wire).subspan(3, 5));
    sum.add(1, std::span(wire).first(8));
    CHECK_THROWS_AS(sum.add(1, std::span(wire).first(1)), std::logic_error);
    CHECK_THROWS_AS(sum.take(0, 9), std::logic_error);
    CHECK(sum.pulled(0) == 0);
    CHECK(take(sum, type, 0) == Numbers{2, 4});
    CHECK_THROWS_AS(sum.take(0, 1), std::logic_error);
}

TEST_CASE("an accumulator without elements or with a wrong number of workers is refused",
          "[accumulator]") {
    const auto make = [](std::size_t elements, std::size_t workers) {
        Accumulator(ElementType::f16, Reduction::sum, SumOrder::arrival, elements, workers);
    };
    CHECK_THROWS_WITH(make(0, 1), Contains("at least one element"));
    CHECK_THROWS_WITH(make(1, 0), Contains("1 to 4096 workers, not 0"));
    CHECK_THROWS_WITH(make(1, 4097), Contains("1 to 4096 workers, not 4097"));
    CHECK_THROWS_AS(make(std::numeric_limits<std::size_t>::max() / 2, 1), std::bad_alloc);
    CHECK_NOTHROW(make(1, 4096));
}

TEST_CASE("the memory of an accumulator is known before", "[accumulator]") {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    const auto memory = [](ElementType type, std::size_t elements, std::size_t workers) {
        return Accumulator::memory(type, elements, workers);
    };
    const std::size_t state = memory(ElementType::f32, 1, 2) - memory(ElementType::f32, 1, 1);
    CHECK(state >= 2 * sizeof(std::uint64_t));
    CHECK(memory(ElementType::f32, 1024, 1) == 1024 * 4 + state);
    CHECK(memory(ElementType::f16, 1024, 1) == 1024 * 6 + state);
    CHECK(memory(ElementType::bf16, 1024, 3) == 1024 * 6 + 3 * state);
    CHECK(memory(ElementType::f32, std::size_t{1} << 40, 1) == (std::size_t{4} << 40) + state);
    CHECK(memory(ElementType::f32, most, 1) == most);
    CHECK(memory(ElementType::f16, most / 4 + 2, 1) == most);  // 4 bytes each would wrap around
    CHECK(memory(ElementType::f32, 1, most) == most);
}

TEST_CASE("results start at a cache line", "[accumulator]") {
    const auto type = GENERATE(ElementType::f32, ElementType::f16);
    const auto elements = GENERATE(1, 5, 2'000'003);
    Accumulator sum(type, Reduction::sum, SumOrder::arrival, static_cast<std::size_t>(elements), 1);
    sum.add(0, encode(type, {1}));
    CHECK(std::bit_cast<std::uintptr_t>(sum.ready(0).data()) % 64 == 0);
}

TEST_CASE("4096 workers share one element", "[accumulator]") {
    const auto order = GENERATE(SumOrder::arrival, SumOrder::rank);
    Accumulator sum(ElementType::bf16, Reduction::sum, order, 1, 4096);
    const auto one = encode(ElementType::bf16, {1});
    for (int round = 0; round < 2; ++round) {
        for (std::size_t worker = 0; worker < 4096; ++worker)
            sum.add(worker, one);
        std::size_t right = 0;
        for (std::size_t worker = 0; worker < 4096; ++worker)
            right += std::size_t{take(sum, ElementType::bf16, worker) == Numbers{4096}};
        REQUIRE(right == 4096);
    }
}

TEST_CASE("positions go on beyond 4 GiB", "[accumulator]") {
    constexpr std::size_t elements = (std::size_t{1} << 20) + 1;  // no power of two
    Accumulator sum(ElementType::f32, Reduction::mean, SumOrder::arrival, elements, 2);
    std::vector<std::byte> wire(sum.bytes());
    const std::uint64_t goal = ((std::uint64_t{1} << 32) / sum.bytes() + 2) * sum.bytes();
    for (float round = 0; sum.taken() < goal; ++round) {
        std::memcpy(wire.data(), &round, sizeof round);
        const auto place = sum.place(1);
        REQUIRE(place.size() == sum.bytes());
        std::ranges::copy(std::span(wire).first(8), place.begin());
        sum.add(1, place);
        sum.add(0, wire);
        for (std::size_t worker = 0; worker < 2; ++worker) {
            float found = 0;
            std::memcpy(&found, sum.ready(worker).data(), sizeof found);
            REQUIRE(found == round);
            REQUIRE(sum.ready(worker).size() == sum.bytes());
            sum.take(worker, sum.bytes());
        }
    }
    CHECK(sum.finished() == goal);
}
