// SPDX-License-Identifier: MIT
//
// What comes back is the sum, end to end over real sockets.
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "rounds.hpp"
#include "world.hpp"

using namespace mercury::transport;
using namespace mercury::transport::test;

namespace {

constexpr std::array types{ElementType::f32, ElementType::f16, ElementType::bf16};

template <typename T>
T one_of(std::mt19937& random, std::initializer_list<T> choices) {
    std::uniform_int_distribution<std::size_t> pick(0, choices.size() - 1);
    return *(choices.begin() + pick(random));
}

/// Of all lengths, types, reductions and classes.
std::vector<Tensor> mixed_tensors(std::mt19937& random) {
    std::vector<Tensor> tensors;
    constexpr std::array<std::size_t, 8> lengths{1, 2, 3, 7, 63, 1000, 4097, 40'009};
    for (const std::size_t elements : lengths) {
        tensors.push_back({"t" + std::to_string(elements),
                           one_of(random, {types[0], types[1], types[2]}), elements,
                           one_of(random, {0U, 1U, 2U, 3U}),
                           one_of(random, {Reduction::sum, Reduction::mean})});
    }
    return tensors;
}

void check_world(std::uint32_t seed, SumOrder order, Kind kind) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto workers = one_of(random, {2U, 3U, 4U, 8U, 16U});
    const auto servers = one_of(random, {1U, 2U, 3U, 5U, 8U});
    CAPTURE(workers, servers);
    ServerOptions options;
    options.in_flight = one_of<std::size_t>(random, {0, 1, 1 << 20});
    options.whole_ranges = one_of(random, {false, false, false, true});
    const Rounds rounds(mixed_tensors(random), workers, order, kind, seed);
    const World world(servers, options);
    const auto joined = world.join(workers, rounds.tensors(), order);
    for (std::uint64_t round = 1; round <= 2; ++round)
        run_round(rounds, joined, round, random);
}

}  // namespace

TEST_CASE("in the order of the ranks the sums are right to the last bit") {
    check_world(GENERATE(range(1U, 11U)), SumOrder::rank, Kind::finite);
}

TEST_CASE("in the order of arrival the sums are within their bound") {
    check_world(GENERATE(range(101U, 111U)), SumOrder::arrival, Kind::finite);
}

TEST_CASE("sums of integers are right to the last bit in any order") {
    check_world(GENERATE(range(201U, 211U)), SumOrder::arrival, Kind::integers);
}

TEST_CASE("2 to 16 workers with 1 to 8 servers") {
    const auto workers = GENERATE(2U, 16U);
    const auto servers = GENERATE(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U);
    CAPTURE(workers, servers);
    std::mt19937 random(workers * 100 + servers);
    const Rounds rounds({{"one", ElementType::f32, 1},
                         {"few", ElementType::f16, 17, 1},
                         {"many", ElementType::bf16, 20'011, 2, Reduction::mean}},
                        workers, SumOrder::rank, Kind::finite, servers);
    const World world(servers);
    const auto joined = world.join(workers, rounds.tensors(), SumOrder::rank);
    for (std::uint64_t round = 1; round <= 2; ++round)
        run_round(rounds, joined, round, random);
}

TEST_CASE("one worker gets back what it pushed") {
    const auto type = GENERATE(types[0], types[1], types[2]);
    const Rounds rounds({{"t", type, 10'001}}, 1, SumOrder::arrival, Kind::finite, 3);
    const World world(2);
    const auto joined = world.join(1, rounds.tensors());
    for (std::uint64_t round = 1; round <= 3; ++round) {
        auto buffer = rounds.gradient(0, round, 0);
        const auto pushed = buffer;
        REQUIRE(joined[0]->wait(joined[0]->push_pull(0, buffer).value()).has_value());
        REQUIRE(buffer == pushed);
    }
}

TEST_CASE("2000 tiny tensors") {
    std::mt19937 random(7);
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < 2000; ++i) {
        tensors.push_back({"t" + std::to_string(i), types[i % 3],
                           std::uniform_int_distribution<std::size_t>(1, 50)(random),
                           static_cast<unsigned>(i / 500)});
    }
    const Rounds rounds(tensors, 3, SumOrder::rank, Kind::finite, 7);
    const World world(4);
    const auto joined = world.join(3, tensors, SumOrder::rank);
    for (std::uint64_t round = 1; round <= 3; ++round)
        run_round(rounds, joined, round, random);
}

TEST_CASE("many rounds of many tensors are in flight, each worker at its own pace") {
    constexpr std::size_t workers = 4;
    constexpr std::uint64_t last_round = 20;
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < 12; ++i)
        tensors.push_back(
            {"t" + std::to_string(i), types[i % 3], 1 + i * i * 300, static_cast<unsigned>(i % 4)});
    const auto order = GENERATE(SumOrder::arrival, SumOrder::rank);
    const Rounds rounds(tensors, workers, order, Kind::integers, 5);
    const World world(3);
    const auto joined = world.join(workers, tensors, order);

    // Each has several rounds of different tensors in flight, in an order of its own.
    std::array<std::string, workers> wrong;
    std::vector<std::thread> threads;
    for (std::size_t w = 0; w < workers; ++w) {
        threads.emplace_back([&, w] {
            std::mt19937 random(static_cast<unsigned>(w));
            std::vector<std::uint64_t> round(tensors.size(), 0);
            std::vector<Bytes> buffers(tensors.size());
            const auto finish = [&](std::size_t t) {
                if (round[t] == 0)
                    return;
                const auto done = joined[w]->wait({t, round[t]});
                if (!done)
                    wrong[w] = done.error().message;
                else if (w == 0)
                    wrong[w] += rounds.check(t, round[t], buffers[t]);
            };
            // All of a round, in any order: whoever would wait for one that another has not
            // begun, while that one waits in turn, would wait for ever.
            std::vector<std::size_t> turn(tensors.size());
            std::iota(turn.begin(), turn.end(), 0);
            for (std::uint64_t r = 1; r <= last_round && wrong[w].empty(); ++r) {
                std::shuffle(turn.begin(), turn.end(), random);
                for (const std::size_t t : turn) {
                    finish(t);
                    buffers[t] = rounds.gradient(t, ++round[t], w);
                    if (const auto begun = joined[w]->push_pull(t, buffers[t]); !begun)
                        wrong[w] = begun.error().message;
                }
            }
            for (const std::size_t t : turn)
                finish(t);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (const std::string& text : wrong)
        REQUIRE(text == "");
}

TEST_CASE("a worker whose pushes start late holds up nothing but their sums") {
    std::mt19937 random(11);
    const Rounds rounds(
        {{"shared", ElementType::f32, 200'000}, {"later", ElementType::f32, 200'000, 1}}, 3,
        SumOrder::arrival, Kind::integers, 11);
    const World world(2);
    const auto joined = world.join(3, rounds.tensors());
    std::vector<std::vector<Bytes>> buffers(3);
    for (std::size_t w = 0; w < 3; ++w)
        buffers[w] = {rounds.gradient(0, 1, w), rounds.gradient(1, 1, w)};

    for (std::size_t w = 0; w < 2; ++w)
        REQUIRE(joined[w]->push_pull(1, buffers[w][1]).has_value());
    // "later" waits for worker 2, "shared" goes on.
    for (std::size_t w = 0; w < 3; ++w)
        REQUIRE(joined[w]->push_pull(0, buffers[w][0]).has_value());
    for (std::size_t w = 0; w < 3; ++w) {
        REQUIRE(joined[w]->wait({0, 1}).has_value());
        REQUIRE(rounds.check(0, 1, buffers[w][0]) == "");
    }
    REQUIRE(joined[2]->push_pull(1, buffers[2][1]).has_value());
    for (std::size_t w = 0; w < 3; ++w) {
        REQUIRE(joined[w]->wait({1, 1}).has_value());
        REQUIRE(rounds.check(1, 1, buffers[w][1]) == "");
    }
}

TEST_CASE("512 MB", "[.large]") {
    constexpr std::size_t elements = (std::size_t{512} << 20) / sizeof(float);
    const World world(2);
    const auto joined = world.join(2, {{"huge", ElementType::f32, elements}}, SumOrder::rank);
    std::vector<std::vector<float>> buffers(2, std::vector<float>(elements));
    // 16 million: all whole numbers below are exact.
    const auto value = [](std::size_t index, std::size_t worker) {
        return static_cast<float>((index * 2'654'435'761U + worker) % 8'000'000);
    };
    for (std::size_t w = 0; w < 2; ++w) {
        for (std::size_t i = 0; i < elements; ++i)
            buffers[w][i] = value(i, w);
        REQUIRE(joined[w]->push_pull(0, std::as_writable_bytes(std::span(buffers[w]))).has_value());
    }
    for (std::size_t w = 0; w < 2; ++w) {
        REQUIRE(joined[w]->wait({0, 1}).has_value());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < elements; ++i)
            wrong += buffers[w][i] == value(i, 0) + value(i, 1) ? 0U : 1U;
        REQUIRE(wrong == 0);
    }
}
