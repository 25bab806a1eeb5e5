// SPDX-License-Identifier: MIT
//
// Accumulator against the model, under random operations. A failure prints the seed; repeat it
// with unit_transport --rng-seed SEED.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "model.hpp"
#include "reference.hpp"
#include "transport/accumulator.hpp"
#include "values.hpp"

namespace mercury::transport::test {
namespace {

constexpr std::uint64_t operations_min = 1'000'000;

std::uint64_t seed() {
    static const std::uint64_t chosen =
        Catch::rngSeed() != 0 ? Catch::rngSeed() : std::random_device{}() | 1U;
    static const bool printed = [] {
        std::cout << "--rng-seed " << chosen << " repeats this run\n";
        return true;
    }();
    static_cast<void>(printed);
    return chosen;
}

/// REQUIRE for what is asked millions of times: Catch2's JUnit reporter keeps everything that went
/// through one of its macros.
void expect(bool good, const char* what) {
    if (!good)
        FAIL(what);
}

template <typename Refused>
void expect_refused(Refused refused, const char* what) {
    try {
        refused();
    } catch (const std::logic_error&) {
        return;
    }
    FAIL(what);
}

class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}

    std::size_t pick(std::size_t from, std::size_t to) {
        return std::uniform_int_distribution<std::size_t>(from, to)(engine_);
    }
    bool one_in(std::size_t n) { return pick(1, n) == 1; }
    template <typename T>
    T any_of(std::initializer_list<T> values) {
        return values.begin()[pick(0, values.size() - 1)];
    }
    /// Large and small ones alike.
    std::size_t pick_log(std::size_t from, std::size_t to) {
        const double exponent = std::uniform_real_distribution<>(
            std::log(static_cast<double>(from)), std::log(static_cast<double>(to) + 1))(engine_);
        return std::clamp(static_cast<std::size_t>(std::exp(exponent)), from, to);
    }
    std::size_t by_weight(const std::vector<double>& weights) {
        return std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(engine_);
    }

  private:
    std::mt19937_64 engine_;
};

struct Shape {
    ElementType type;
    Reduction reduction;
    SumOrder order;
    Kind kind;
    std::size_t elements;
    std::size_t workers;
    bool one_in_flight;  // a worker pushes a round only when it has pulled the last one
};

Shape any_shape(Random& random) {
    return {.type = random.any_of({ElementType::f32, ElementType::f16, ElementType::bf16}),
            .reduction = random.any_of({Reduction::sum, Reduction::mean}),
            .order = random.any_of({SumOrder::arrival, SumOrder::rank}),
            .kind = random.any_of({Kind::any, Kind::finite, Kind::integers}),
            .elements = random.pick_log(1, random.one_in(8) ? 5000 : 60),
            .workers = random.pick(1, 16),
            .one_in_flight = random.one_in(3)};
}

std::string describe(const Shape& shape) {
    return std::string(to_string(shape.type)) + ", " + std::string(to_string(shape.reduction)) +
           ", " + std::string(to_string(shape.order)) + " order, " +
           std::to_string(shape.elements) + " elements, " + std::to_string(shape.workers) +
           " workers" + (shape.one_in_flight ? ", one round in flight" : "");
}

/// An accumulator and its model, which are done the same to.
class Game {
  public:
    Game(const Shape& shape, Random& random)
        : shape_(shape),
          random_(random),
          values_(shape.type, shape.kind, random.pick(0, 1ULL << 60)),
          sum_(shape.type, shape.reduction, shape.order, shape.elements, shape.workers),
          model_(shape.type, shape.reduction, shape.order, shape.elements, shape.workers),
          fed_(shape.workers) {
        change_speeds();
    }

    void change_speeds();
    void step();
    /// Everybody goes on to the end of the round that the fastest has begun.
    void finish();
    std::uint64_t rounds() const { return sum_.taken() / sum_.bytes(); }

  private:
    std::size_t cut(std::size_t most);
    std::size_t may_push(std::size_t worker) const;
    void push(std::size_t worker, std::size_t bytes);
    void pull(std::size_t worker, std::size_t bytes);
    void overreach(std::size_t worker);
    void check(std::size_t worker) const;
    void check_ends() const;

    Shape shape_;
    Random& random_;
    Values values_;
    Accumulator sum_;
    Model model_;
    std::vector<std::uint64_t> fed_;  // bytes, by worker
    std::vector<double> push_speed_;
    std::vector<double> pull_speed_;
};

void Game::change_speeds() {
    for (auto* const speeds : {&push_speed_, &pull_speed_}) {
        speeds->clear();
        for (std::size_t i = 0; i < shape_.workers; ++i)
            speeds->push_back(random_.any_of({0.01, 1.0, 1.0, 10.0}));
    }
}

std::size_t Game::cut(std::size_t most) {
    if (random_.one_in(4))
        return most;
    return random_.one_in(2) ? random_.pick(0, std::min<std::size_t>(most, 9))
                             : random_.pick(0, most);
}

std::size_t Game::may_push(std::size_t worker) const {
    const std::uint64_t round = fed_[worker] / sum_.bytes();
    const bool in_flight = sum_.pulled(worker) < round * sum_.bytes();
    return shape_.one_in_flight && in_flight ? 0 : sum_.room(worker);
}

void Game::push(std::size_t worker, std::size_t n) {
    const auto bytes = values_.bytes(worker, fed_[worker], n);
    const auto place = sum_.place(worker);
    expect(place.empty() || place.size() == sum_.room(worker), "place() is all the room or none");
    if (!place.empty() && random_.one_in(2)) {
        std::ranges::copy(bytes, place.begin());
        sum_.add(worker, place.first(n));
    } else {
        sum_.add(worker, bytes);
    }
    model_.add(worker, bytes);
    fed_[worker] += n;
}

void Game::pull(std::size_t worker, std::size_t n) {
    sum_.take(worker, n);
    model_.take(worker, n);
}

void Game::overreach(std::size_t worker) {
    const std::vector<std::byte> bytes(sum_.room(worker) + random_.pick(1, 5));
    expect_refused([&] { sum_.add(worker, bytes); }, "more than there is room for");
    const std::size_t most = sum_.ready(worker).size();
    expect_refused([&] { sum_.take(worker, most + random_.pick(1, 5)); }, "more than is ready");
}

// What is ready is looked at again and again until it is taken: so nobody has written over it.
void Game::check(std::size_t worker) const {
    const auto ready = sum_.ready(worker);
    expect(sum_.room(worker) == model_.room(worker), "room()");
    expect(ready.size() == model_.ready(worker), "as much is ready");
    expect(model_.agrees(worker, ready), "what is ready");
    expect(sum_.pushed(worker) == model_.pushed(worker), "pushed()");
    expect(sum_.pulled(worker) == model_.pulled(worker), "pulled()");
}

// Somebody can always go on: push, or take what is ready.
void Game::check_ends() const {
    std::uint64_t finished = UINT64_MAX;
    std::uint64_t taken = UINT64_MAX;
    bool stuck = true;
    for (std::size_t worker = 0; worker < shape_.workers; ++worker) {
        finished = std::min(finished, model_.pushed(worker));
        taken = std::min(taken, model_.pulled(worker));
        stuck = stuck && may_push(worker) == 0 && sum_.ready(worker).empty();
    }
    expect(sum_.finished() == finished, "finished()");
    expect(sum_.taken() == taken, "taken()");
    expect(!stuck, "somebody can go on");
}

void Game::step() {
    if (random_.one_in(200))
        change_speeds();
    std::size_t worker = 0;
    if (random_.one_in(50)) {
        worker = random_.pick(0, shape_.workers - 1);
        overreach(worker);
    } else if (random_.one_in(2)) {
        worker = random_.by_weight(push_speed_);
        push(worker, cut(may_push(worker)));
    } else {
        worker = random_.by_weight(pull_speed_);
        pull(worker, cut(sum_.ready(worker).size()));
    }
    check(worker);
    check(random_.pick(0, shape_.workers - 1));
    check_ends();
}

void Game::finish() {
    const auto fastest = *std::ranges::max_element(fed_);
    const std::uint64_t goal = (fastest + sum_.bytes() - 1) / sum_.bytes() * sum_.bytes();
    while (sum_.taken() < goal) {
        std::size_t moved = 0;
        for (std::size_t worker = 0; worker < shape_.workers; ++worker) {
            check(worker);
            const std::size_t ready = sum_.ready(worker).size();
            pull(worker, ready);
            const std::uint64_t left = goal - fed_[worker];
            const auto bytes = std::min<std::uint64_t>(may_push(worker), left);
            push(worker, bytes);
            moved += ready + bytes;
        }
        expect(moved > 0, "somebody goes on");
    }
    expect(sum_.finished() == goal, "all is finished");
}

}  // namespace

TEST_CASE("an accumulator does what the model says, in a million random operations", "[random]") {
    INFO("--rng-seed " << seed());
    Random random(seed());
    std::uint64_t operations = 0;
    std::uint64_t games = 0;
    std::uint64_t rounds = 0;
    while (operations < operations_min) {
        const Shape shape = any_shape(random);
        INFO("game " << games << ": " << describe(shape));
        Game game(shape, random);
        // As many as cost the model about the same time, and enough for some rounds.
        const std::uint64_t length =
            std::clamp<std::uint64_t>(400'000 / shape.elements, 400, 10'000);
        for (std::uint64_t i = 0; i < length; ++i)
            game.step();
        game.finish();
        operations += length;
        rounds += game.rounds();
        ++games;
    }
    std::cout << operations << " operations in " << games << " games with " << rounds
              << " rounds\n";
}

namespace {

/// Pushes a whole round in random pieces, in whatever order there is room, and returns the result.
std::vector<std::byte> one_round(const Shape& shape, const Values& values, Random& random) {
    Accumulator sum(shape.type, shape.reduction, shape.order, shape.elements, shape.workers);
    std::vector<std::uint64_t> fed(shape.workers);
    while (sum.finished() < sum.bytes()) {
        const std::size_t worker = random.pick(0, shape.workers - 1);
        const std::size_t n = std::min(sum.room(worker), random.pick_log(1, 4000));
        sum.add(worker, values.bytes(worker, fed[worker], n));
        fed[worker] += n;
    }
    const auto ready = sum.ready(0);
    return {ready.begin(), ready.end()};
}

float element(const Shape& shape, const Values& values, std::size_t worker, std::size_t index) {
    return static_cast<float>(value_of(shape.type, values.element(worker, index)));
}

std::vector<std::byte> in_rank_order(const Shape& shape, const Values& values) {
    std::vector<std::byte> result(shape.elements * size_of(shape.type));
    for (std::size_t i = 0; i < shape.elements; ++i) {
        float sum = element(shape, values, 0, i);
        for (std::size_t worker = 1; worker < shape.workers; ++worker)
            sum += element(shape, values, worker, i);
        if (shape.reduction == Reduction::mean)
            sum *= 1.0F / static_cast<float>(shape.workers);
        save(shape.type, nearest(shape.type, sum), result, i);
    }
    return result;
}

struct Interval {
    double from;
    double to;
};

/// What element INDEX may be, in whatever order its N addends were added. Each of the n - 1
/// additions in f32 has a relative error of at most u = 2^-24, so that the sum is off by at most
/// k u / (1 - k u) times the sum of the magnitudes, with k = n - 1 (Higham, Accuracy and Stability
/// of Numerical Algorithms, 4.2). The mean has two more roundings, of 1/n and of the product. The
/// last rounding, to f16 or bf16, is monotone: it maps the ends to the ends.
Interval bounds(const Shape& shape, const Values& values, std::size_t index) {
    long double sum = 0;  // exact here: the addends of Kind::finite span 16 + 23 bits
    long double magnitudes = 0;
    for (std::size_t worker = 0; worker < shape.workers; ++worker) {
        const auto addend = static_cast<long double>(element(shape, values, worker, index));
        sum += addend;
        magnitudes += std::fabs(addend);
    }
    const bool mean = shape.reduction == Reduction::mean;
    const auto workers = static_cast<long double>(shape.workers);
    const long double ku = (workers - 1 + (mean ? 2 : 0)) * 0x1p-24L;
    const long double error = ku / (1 - ku) * magnitudes;
    const long double divisor = mean ? workers : 1;
    const auto rounded = [&](long double value) {
        return value_of(shape.type, nearest(shape.type, static_cast<double>(value / divisor)));
    };
    return {rounded(sum - error), rounded(sum + error)};
}

Shape long_shape(Random& random, SumOrder order) {
    Shape shape = any_shape(random);
    shape.order = order;
    shape.kind = Kind::finite;
    shape.elements = random.pick_log(1, 20'000);
    shape.workers = random.pick(2, 64);
    return shape;
}

}  // namespace

TEST_CASE("in rank order a sum has the same bits however it arrives", "[random]") {
    INFO("--rng-seed " << seed());
    Random random(seed());
    for (int game = 0; game < 60; ++game) {
        const Shape shape = long_shape(random, SumOrder::rank);
        INFO("game " << game << ": " << describe(shape));
        const Values values(shape.type, shape.kind, random.pick(0, 1ULL << 60));
        expect(one_round(shape, values, random) == in_rank_order(shape, values), "the sum");
    }
}

TEST_CASE("in order of arrival a sum is as close as n - 1 roundings allow", "[random]") {
    INFO("--rng-seed " << seed());
    Random random(seed());
    std::size_t differ = 0;
    for (int game = 0; game < 60; ++game) {
        const Shape shape = long_shape(random, SumOrder::arrival);
        INFO("game " << game << ": " << describe(shape));
        const Values values(shape.type, shape.kind, random.pick(0, 1ULL << 60));
        const auto result = one_round(shape, values, random);
        for (std::size_t i = 0; i < shape.elements; ++i) {
            const double found = value_of(shape.type, load(shape.type, result, i));
            const Interval allowed = bounds(shape, values, i);
            if (!(allowed.from <= found && found <= allowed.to)) {
                FAIL("element " << i << " is " << found << ", not " << allowed.from << " to "
                                << allowed.to);
            }
        }
        differ += std::size_t{result != in_rank_order(shape, values)};
    }
    CHECK(differ > 0);  // or the bound would not be put to the test
}

}  // namespace mercury::transport::test
