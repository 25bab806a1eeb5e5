// SPDX-License-Identifier: MIT
// The rules of the order, one by one.
#include "core.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <map>
#include <string>
#include <vector>

namespace mercury::test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr mercury_size kPacket{1500, 2304};
constexpr mercury_size kGso{65536, 70000};

// Keeps these jobs backlogged while `bytes` are sent; the bytes of each. A job number of
// MERCURY_DEFAULT stands for the default class.
std::map<std::uint32_t, std::uint64_t> share_out(Queue& queue,
                                                 const std::map<std::uint32_t, mercury_size>& users,
                                                 std::uint64_t bytes) {
    std::map<std::uint32_t, std::uint64_t> sent;
    for (const auto& [user, size] : users) {
        if (user == MERCURY_DEFAULT) {
            mercury_core_wake(&queue.core(), MERCURY_DEFAULT);
        } else {
            queue.put({user, 0}, {0, size, 0});
        }
    }
    std::uint64_t total = 0;
    while (total < bytes) {
        const auto user = static_cast<std::uint32_t>(queue.next());
        const mercury_size size = users.at(user);
        if (user == MERCURY_DEFAULT) {
            mercury_core_charge(&queue.core(), MERCURY_DEFAULT,
                            mercury_default_cost(&queue.core(), size.bytes));
        } else {
            queue.put({user, 0}, {0, size, 0});
            queue.take(user, 0);
        }
        sent[user] += size.bytes;
        total += size.bytes;
    }
    return sent;
}

TEST_CASE("a lower band goes first, wherever its bit is") {
    const auto bands = GENERATE(2U, 41U, 64U, 65U, 128U, 1024U);
    Queue queue(1, bands);
    for (std::uint32_t b = bands; b-- > 0;) {
        queue.put({0, b}, {b, kPacket, 0});
    }
    for (std::uint32_t b = 0; b < bands; ++b) {
        REQUIRE(queue.take(1)->packet.id == b);
    }
    REQUIRE_FALSE(queue.take(1).has_value());
    REQUIRE_NOTHROW(queue.check());
}

TEST_CASE("a band is first in, first out") {
    Queue queue(1, 64);
    for (std::uint64_t id = 0; id < 100; ++id) {
        queue.put({0, 7}, {id, kPacket, id});
    }
    for (std::uint64_t id = 0; id < 100; ++id) {
        REQUIRE(queue.take(200)->packet.id == id);
    }
}

TEST_CASE("jobs share the link by weight, the default class has its part of it") {
    struct Case {
        std::string name;
        std::map<std::uint32_t, std::uint32_t> weights;
        std::uint32_t default_share; // 0: nothing waits there
    };
    const auto c = GENERATE(values<Case>({
        {"two equal", {{0, 1}, {1, 1}}, 0},
        {"1 to 2, and 10 %", {{0, 1}, {1, 2}}, 10},
        {"1 to 1000", {{3, 1}, {5, 1000}}, 0},
        {"1 to 7 to 13, and 1 %", {{0, 1}, {1, 7}, {2, 13}}, 1},
        {"one, and 99 %", {{0, 500}}, 99},
        {"one, and 10 %", {{0, 1}}, 10},
    }));
    // Unlike packets do not matter, and neither does who sends the larger ones.
    const bool small_default = GENERATE(false, true);
    INFO(c.name << ", small packets in the default class: " << small_default);
    Queue queue(16, 64);
    std::map<std::uint32_t, mercury_size> users;
    std::uint32_t weights = 0;
    for (const auto& [job, weight] : c.weights) {
        mercury_job_set_weight(&queue.core(), &queue.job(job), weight);
        users[job] = small_default ? kGso : kPacket;
        weights += weight;
    }
    if (c.default_share != 0) {
        queue.core().default_share = c.default_share;
        users[MERCURY_DEFAULT] = small_default ? mercury_size{100, 768} : kGso;
    }
    constexpr std::uint64_t total = 1ULL << 30;
    auto sent = share_out(queue, users, total);
    for (const auto& [job, weight] : c.weights) {
        const double share = (100.0 - c.default_share) / 100 * weight / weights;
        CHECK(static_cast<double>(sent[job]) / total == Approx(share).epsilon(0.002).margin(0.0002));
    }
    CHECK(static_cast<double>(sent[MERCURY_DEFAULT]) / total ==
          Approx(c.default_share / 100.0).epsilon(0.002).margin(0.0002));
}

TEST_CASE("what one does not use goes to the others") {
    Queue queue(16, 64);
    mercury_job_set_weight(&queue.core(), &queue.job(0), 1000);
    REQUIRE(share_out(queue, {{1, kPacket}}, 1 << 20)[1] >= 1 << 20);
}

TEST_CASE("who was idle saves nothing up") {
    Queue queue(2, 64);
    share_out(queue, {{0, kPacket}}, 1 << 28);
    auto sent = share_out(queue, {{0, kPacket}, {1, kPacket}}, 1 << 20);
    REQUIRE(static_cast<double>(sent[0]) == Approx(static_cast<double>(sent[1])).epsilon(0.01));
}

TEST_CASE("a user that wakes waits for one packet of the others, whatever the weights") {
    Queue queue(62, 64);
    for (std::uint32_t j = 1; j < 62; ++j) {
        mercury_job_set_weight(&queue.core(), &queue.job(j), 1 + 16 * j);
        for (int i = 0; i < 100; ++i) {
            queue.put({j, 0}, {0, kGso, 0});
        }
    }
    for (int i = 0; i < 1000; ++i) {
        queue.take(0);
    }
    const std::uint32_t user = GENERATE(0U, MERCURY_DEFAULT);
    if (user == MERCURY_DEFAULT) {
        mercury_core_wake(&queue.core(), user);
    } else {
        queue.put({user, 63}, {1, kPacket, 0});
    }
    int others = 0;
    while (queue.next() != static_cast<int>(user)) {
        queue.take(0);
        ++others;
    }
    REQUIRE(others <= 1);
}

TEST_CASE("a tag of the distant past is not one of the future") {
    Queue queue(2, 64);
    // Job 1 was last seen 2^63 ago and more: as a signed distance, ahead.
    queue.core().vtime[0] = queue.core().vnow = 1ULL << 63;
    queue.core().vtime[1] = GENERATE(0ULL, 1ULL, (1ULL << 63) + (1ULL << 56), 1ULL << 62);
    queue.put({0, 0}, {0, kPacket, 0});
    queue.put({1, 0}, {1, kPacket, 0});
    queue.take(0);
    REQUIRE(queue.take(0)->packet.id == 1);
}

TEST_CASE("an overdue band goes first") {
    Queue queue(1, 64);
    queue.set_deadline({0, 40}, 5 * kMs);
    queue.put({0, 40}, {40, kPacket, 0});
    queue.put({0, 0}, {0, kPacket, 0});
    queue.put({0, 0}, {1, kPacket, 0});
    CHECK(queue.take(5 * kMs - 1)->packet.id == 0);
    const auto sent = queue.take(5 * kMs);
    CHECK(sent->packet.id == 40);
    CHECK(sent->rescued);
    CHECK(queue.take(5 * kMs)->packet.id == 1);
}

TEST_CASE("of several that are overdue, the one that was due first goes first") {
    Queue queue(1, 1024);
    constexpr std::array<std::uint32_t, 5> order{900, 3, 64, 63, 500};
    for (std::uint64_t i = 0; i < order.size(); ++i) {
        queue.set_deadline({0, order[i]}, (i + 1) * kMs);
    }
    mercury_core_set_rescue(&queue.core(), 100);
    for (std::uint32_t b : {3U, 63U, 64U, 500U, 900U}) {
        queue.put({0, b}, {b, kPacket, 0});
    }
    for (const std::uint32_t b : order) {
        queue.put({0, 0}, {0, kPacket, 20 * kMs});
        CHECK(queue.take(20 * kMs)->packet.id == b);
    }
}

TEST_CASE("the head of a band decides when it is overdue") {
    Queue queue(1, 2);
    queue.set_deadline({0, 1}, 10 * kMs);
    queue.put({0, 1}, {1, kPacket, 0});
    queue.put({0, 1}, {2, kPacket, 9 * kMs});
    queue.put({0, 0}, {3, kPacket, 0});
    queue.put({0, 0}, {4, kPacket, 0});
    CHECK(queue.take(10 * kMs)->packet.id == 1);
    CHECK(queue.take(11 * kMs)->packet.id == 3); // packet 2 is due at 19 ms
    queue.core().job[0].credit = 0;
    CHECK(queue.take(19 * kMs)->packet.id == 2);
}

TEST_CASE("rescued bytes stay below rescue per cent of what the job sends") {
    const auto rescue = GENERATE(1U, 10U, 50U, 99U);
    Queue queue(1, 64);
    mercury_core_set_rescue(&queue.core(), rescue);
    std::uint64_t all = 0;
    std::uint64_t rescued = 0;
    for (int i = 0; i < 20'000; ++i) {
        queue.put({0, 0}, {0, kPacket, 1000 * kMs});
        queue.put({0, 63}, {0, kGso, 0}); // overdue, all of them
        const auto sent = queue.take(1000 * kMs);
        all += sent->packet.size.bytes;
        rescued += sent->rescued ? sent->packet.size.bytes : 0;
        // A job may start with one packet, and save up 1 MiB.
        REQUIRE(rescued <= all * rescue / 100 + (1 << 20) + kGso.bytes);
    }
    CHECK(static_cast<double>(rescued) ==
          Approx(static_cast<double>(all) * rescue / 100).margin(2.0 * kGso.bytes));
}

TEST_CASE("rescue 0: never") {
    Queue queue(1, 64);
    mercury_core_set_rescue(&queue.core(), 0);
    queue.put({0, 63}, {63, kPacket, 0});
    for (int i = 0; i < 1000; ++i) {
        queue.put({0, 0}, {0, kPacket, 0});
        REQUIRE(queue.take(1'000'000 * kMs)->packet.id == 0);
    }
}

TEST_CASE("rescue 100: the overdue, earliest deadline first") {
    Queue queue(1, 64);
    mercury_core_set_rescue(&queue.core(), 100);
    for (std::uint32_t b = 0; b < 64; ++b) {
        queue.set_deadline({0, b}, (64 - b) * kMs);
        queue.put({0, b}, {b, kGso, 0});
    }
    for (std::uint32_t b = 64; b-- > 0;) {
        REQUIRE(queue.take(1000 * kMs)->packet.id == b);
    }
}

TEST_CASE("a band without a deadline is never overdue") {
    Queue queue(1, 2);
    queue.set_deadline({0, 1}, MERCURY_TIME_NONE);
    queue.put({0, 1}, {1, kPacket, 0});
    queue.put({0, 0}, {0, kPacket, 0});
    CHECK(queue.take(1'000'000 * kMs)->packet.id == 0);
    const auto& count = queue.band({0, 1}).count;
    CHECK(queue.take(1'000'000 * kMs)->packet.id == 1);
    CHECK(count.met == 0);
    CHECK(count.missed == 0);
    CHECK(count.segments == 1);
}

TEST_CASE("a deadline that changes holds for what is queued") {
    Queue queue(1, 2);
    queue.put({0, 1}, {1, kPacket, 0});
    queue.put({0, 0}, {0, kPacket, 0});
    queue.put({0, 0}, {2, kPacket, 0});
    SECTION("sooner") {
        queue.set_deadline({0, 1}, 1 * kMs);
        CHECK(queue.take(1 * kMs)->packet.id == 1);
    }
    SECTION("later") {
        queue.set_deadline({0, 1}, 1 * kMs);
        queue.set_deadline({0, 1}, 3 * kMs);
        CHECK(queue.take(2 * kMs)->packet.id == 0);
        CHECK(queue.take(3 * kMs)->packet.id == 1);
    }
    SECTION("none") {
        queue.set_deadline({0, 1}, MERCURY_TIME_NONE);
        CHECK(queue.take(1000 * kMs)->packet.id == 0);
    }
    CHECK_NOTHROW(queue.check());
}

TEST_CASE("met, missed and late") {
    Queue queue(1, 2);
    for (std::uint64_t id = 0; id < 3; ++id) {
        queue.put({0, 0}, {id, kPacket, 0});
    }
    queue.take(100 * kMs); // on the dot
    queue.take(100 * kMs + 7);
    queue.take(100 * kMs + 30);
    const auto& count = queue.band({0, 0}).count;
    CHECK(count.met == 1);
    CHECK(count.missed == 2);
    CHECK(count.lateness == 37);
    CHECK(count.lateness_max == 30);
    CHECK(count.rescued == 0);
}

TEST_CASE("the sojourn histogram doubles from 1024 ns") {
    const auto [wait, bucket] = GENERATE(table<std::uint64_t, std::uint32_t>({
        {0, 0}, {1023, 0}, {1024, 1}, {2047, 1}, {2048, 2}, {1024 << 10, 11},
        {(1024ULL << 22) - 1, 22}, {1024ULL << 22, 23}, {1ULL << 60, 23}}));
    Queue queue(1, 2);
    queue.put({0, 0}, {0, kPacket, 5});
    queue.take(5 + wait);
    for (std::uint32_t i = 0; i < MERCURY_SOJOURN_BUCKETS; ++i) {
        CHECK(queue.band({0, 0}).count.sojourn[i] == (i == bucket ? 1 : 0));
    }
}

TEST_CASE("the job that holds most beyond its share gives up its least urgent packet") {
    Queue queue(3, 64);
    mercury_job_set_weight(&queue.core(), &queue.job(1), 3);
    for (std::uint64_t id = 0; id < 40; ++id) { // job 0: share 25 of 100
        queue.put({0, static_cast<std::uint32_t>(id)}, {id, kPacket, 0});
    }
    for (std::uint64_t id = 100; id < 160; ++id) { // job 1: share 75 of 100
        queue.put({1, 5}, {id, kPacket, 0});
    }
    CHECK(queue.push_out(100, false).id == 39);
    CHECK(queue.push_out(100, false).id == 38);
    // By memory it is who holds the large packets.
    queue.put({1, 9}, {200, {65536, 1 << 20}, 0});
    CHECK(queue.push_out(1 << 20, true).id == 200);
    CHECK_NOTHROW(queue.check());
}

TEST_CASE("a resize keeps packets, order, settings and counts") {
    Queue queue(4, 64);
    mercury_job_set_weight(&queue.core(), &queue.job(1), 9);
    queue.set_deadline({1, 10}, 3 * kMs);
    queue.put({0, 0}, {1, kPacket, 0});
    queue.put({1, 20}, {2, kPacket, 0});
    queue.put({3, 63}, {3, kPacket, 0});
    queue.put({3, 2}, {4, kPacket, 0});
    queue.take(0);
    queue.resize(2, 16);
    CHECK_NOTHROW(queue.check());
    CHECK(queue.core().qlen == 3);
    CHECK(queue.job(1).weight == 9);
    CHECK(queue.band({1, 10}).deadline == 3 * kMs);
    CHECK(queue.band({0, 0}).count.segments == 1);
    // 20 and 63 are now in the last band of the last job, behind band 2.
    CHECK(queue.take(0)->packet.id == 4);
    CHECK(queue.take(0)->packet.id == 2);
    CHECK(queue.take(0)->packet.id == 3);
    CHECK(queue.band({1, 15}).count.segments == 2);
    queue.resize(62, 1024);
    CHECK_NOTHROW(queue.check());
    CHECK(queue.band({1, 15}).count.segments == 2);
    CHECK(queue.band({40, 1000}).deadline == MERCURY_DEADLINE_DEFAULT);
}

} // namespace
} // namespace mercury::test
