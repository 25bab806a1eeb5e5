// SPDX-License-Identifier: MIT
// mercury_core against the model, under random operations. A failure prints the seed; repeat it
// with unit_core --rng-seed SEED.
#include "model.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <iostream>
#include <random>
#include <string>

namespace mercury::test {
namespace {

constexpr int kRounds = 80;
constexpr int kOperations = 20'000; // in each round: 1.6 million in all

class Duel {
public:
    Duel(std::mt19937_64& random, std::uint32_t jobs, std::uint32_t bands)
        : random_(random), queue_(jobs, bands), model_(jobs, bands) {
        // Virtual time wraps in the middle of a round.
        queue_.core().vnow = std::uint64_t{0} - (std::uint64_t{1} << pick(20, 40));
        for (std::uint64_t& start : queue_.core().vtime) {
            start = queue_.core().vnow;
        }
    }

    void step();
    void drain();
    void check();

private:
    using Action = void (Duel::*)();

    std::uint64_t pick(std::uint64_t from, std::uint64_t to) {
        return std::uniform_int_distribution<std::uint64_t>(from, to)(random_);
    }
    Place somewhere();
    std::uint64_t some_deadline();
    void put();
    void send();
    void send_from_default();
    void push_out();
    void set_deadline();
    void set_weight();
    void set_shares();
    void toggle_default();
    void resize();
    void clear();
    void wait() { now_ += std::uint64_t{1} << pick(0, 28); }

    std::mt19937_64& random_;
    Queue queue_;
    Model model_;
    std::uint64_t now_ = 1;
    std::uint64_t id_ = 0;
    bool default_awake_ = false;
};

// Half of the time one of a few places, so that queues grow; else any.
Place Duel::somewhere() {
    const std::uint32_t jobs = queue_.core().jobs;
    const std::uint32_t bands = queue_.core().bands;
    if (pick(0, 1) == 0) {
        return {static_cast<std::uint32_t>(pick(0, std::min(jobs, 3U) - 1)),
                static_cast<std::uint32_t>(pick(0, 3) * (bands - 1) / 3)};
    }
    return {static_cast<std::uint32_t>(pick(0, jobs - 1)),
            static_cast<std::uint32_t>(pick(0, bands - 1))};
}

std::uint64_t Duel::some_deadline() {
    return pick(0, 3) == 0 ? MERCURY_TIME_NONE : std::uint64_t{1000} << pick(0, 20);
}

void Duel::put() {
    const Place at = somewhere();
    const auto bytes = static_cast<std::uint32_t>(pick(0, 3) == 0 ? pick(40, 65536) : 1514);
    Packet packet{++id_, {bytes, bytes + 768}, now_};
    if (pick(0, 15) == 0) {
        packet.own_due = now_ + pick(0, 1 << 24); // SO_TXTIME: not in the order of the queue
    }
    queue_.put(at, packet);
    model_.put(at, packet);
}

void Duel::send() {
    const int user = queue_.next();
    REQUIRE(model_.may_send().contains(user));
    if (user < 0) {
        return;
    }
    if (user == MERCURY_DEFAULT) {
        send_from_default();
        return;
    }
    const auto job = static_cast<std::uint32_t>(user);
    const auto allowed = model_.may_send(job, now_);
    const Sent sent = queue_.take(job, now_);
    REQUIRE(allowed.contains(sent.from.band));
    const Sent expected = model_.take(sent.from, now_);
    REQUIRE(sent.packet.id == expected.packet.id);
    REQUIRE(sent.rescued == expected.rescued);
    const mercury_counters& count = queue_.band(sent.from).count;
    REQUIRE(std::memcmp(&count, &model_.count(sent.from), sizeof(count)) == 0);
    now_ += sent.packet.size.bytes; // 8 Gbit/s
}

void Duel::send_from_default() {
    const auto bytes = static_cast<std::uint32_t>(pick(40, 65536));
    mercury_core_charge(&queue_.core(), MERCURY_DEFAULT,
                            mercury_default_cost(&queue_.core(), bytes));
    model_.charge_default(bytes);
}

void Duel::toggle_default() {
    default_awake_ = !default_awake_;
    if (default_awake_) {
        mercury_core_wake(&queue_.core(), MERCURY_DEFAULT);
        model_.wake_default();
    } else {
        mercury_core_sleep(&queue_.core(), MERCURY_DEFAULT);
        model_.sleep_default();
    }
}

void Duel::push_out() {
    if (queue_.core().qlen == 0) {
        return;
    }
    const bool by_memory = pick(0, 1) == 0;
    const std::uint64_t limit = by_memory ? pick(1 << 20, 1ULL << 32) : pick(1, 1 << 20);
    const std::uint32_t victim = mercury_core_victim(&queue_.core(), limit, by_memory)->number;
    REQUIRE(model_.victims(limit, by_memory).contains(victim));
    REQUIRE(queue_.push_out(limit, by_memory).id == model_.push_out(victim).id);
}

void Duel::set_deadline() {
    const Place at = somewhere();
    const std::uint64_t deadline = some_deadline();
    queue_.set_deadline(at, deadline);
    model_.set_deadline(at, deadline);
}

void Duel::set_weight() {
    const std::uint32_t job = somewhere().job;
    const auto weight = static_cast<std::uint32_t>(pick(MERCURY_WEIGHT_MIN, MERCURY_WEIGHT_MAX));
    mercury_job_set_weight(&queue_.core(), &queue_.job(job), weight);
    model_.set_weight(job, weight);
}

void Duel::set_shares() {
    const auto share = static_cast<std::uint32_t>(pick(MERCURY_SHARE_MIN, MERCURY_SHARE_MAX));
    constexpr std::uint32_t rescues[] = {0, 1, 10, 50, 100};
    const std::uint32_t rescue = rescues[pick(0, 4)];
    queue_.core().default_share = share;
    mercury_core_set_rescue(&queue_.core(), rescue);
    model_.set_default_share(share);
    model_.set_rescue(rescue);
}

void Duel::resize() {
    const auto jobs = static_cast<std::uint32_t>(pick(MERCURY_JOBS_MIN, 8));
    const auto bands = static_cast<std::uint32_t>(pick(MERCURY_BANDS_MIN, 130));
    queue_.resize(jobs, bands);
    model_.resize(jobs, bands);
    default_awake_ = false;
}

void Duel::clear() {
    queue_.clear();
    model_.clear();
    default_awake_ = false;
}

void Duel::step() {
    // In a thousand steps, how many of each.
    static constexpr std::pair<int, Action> actions[] = {
        {430, &Duel::put},          {400, &Duel::send},       {60, &Duel::wait},
        {40, &Duel::push_out},      {30, &Duel::set_deadline}, {15, &Duel::toggle_default},
        {12, &Duel::set_weight},    {11, &Duel::set_shares},  {1, &Duel::resize},
        {1, &Duel::clear},
    };
    auto left = static_cast<int>(pick(0, 999));
    for (const auto& [share, action] : actions) {
        left -= share;
        if (left < 0) {
            (this->*action)();
            return;
        }
    }
}

void Duel::drain() {
    if (default_awake_) {
        toggle_default();
    }
    while (queue_.core().qlen != 0) {
        send();
    }
    REQUIRE(model_.qlen() == 0);
}

void Duel::check() {
    REQUIRE_NOTHROW(queue_.check());
    REQUIRE(queue_.core().qlen == model_.qlen());
}

TEST_CASE("the core does what the model says, in 1.6 million random operations") {
    static const std::uint64_t seed =
        Catch::rngSeed() != 0 ? Catch::rngSeed() : std::random_device{}();
    std::cout << "unit_core --rng-seed " << seed << " repeats this run\n";
    INFO("--rng-seed " << seed);
    std::mt19937_64 random(seed);
    constexpr std::pair<std::uint32_t, std::uint32_t> sizes[] = {
        {1, 2}, {2, 64}, {3, 65}, {16, 64}, {62, 8}, {4, 1024}, {1, 1024}, {7, 31}};
    for (int round = 0; round < kRounds; ++round) {
        const auto [jobs, bands] = sizes[static_cast<std::size_t>(round) % std::size(sizes)];
        INFO("round " << round << ": " << jobs << " jobs of " << bands << " bands");
        Duel duel(random, jobs, bands);
        for (int operation = 0; operation < kOperations; ++operation) {
            duel.step();
            if (operation % 256 == 0) {
                duel.check();
            }
        }
        duel.check();
        duel.drain();
        duel.check();
    }
}

} // namespace
} // namespace mercury::test
