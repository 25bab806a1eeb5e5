// SPDX-License-Identifier: MIT
#include "netlink/deadlines.hpp"

#include <random>

#include <catch2/catch.hpp>

using namespace mercury::netlink;

TEST_CASE("a later deadline overrides an earlier one; every job has runs of its own") {
    DeadlineTable table(3, 8);
    CHECK(table.runs().empty());
    const std::vector<Deadline> given{
        {{}, 2, 5, Time{7000}}, {1, 3, 3, no_time}, {1, 7, 9, Time{1000}}, {5, 0, 7, Time{1}}};
    table.set(given);
    CHECK(table.at(0, 3) == Time{7000});
    CHECK(table.at(1, 3) == no_time);
    CHECK(table.at(2, 0) == Time{MERCURY_DEADLINE_DEFAULT});
    CHECK(table.runs() == std::vector<Deadline>{{0, 2, 5, Time{7000}},
                                                {1, 2, 2, Time{7000}},
                                                {1, 3, 3, no_time},
                                                {1, 4, 5, Time{7000}},
                                                {1, 7, 7, Time{1000}},
                                                {2, 2, 5, Time{7000}}});
}

TEST_CASE("what all jobs have is named once") {
    DeadlineTable table(4, 4);
    table.set(std::vector<Deadline>{{{}, 0, 0, Time{5}}, {{}, 1, 3, Time{6}}});
    CHECK(table.runs() == std::vector<Deadline>{{{}, 0, 0, Time{5}}, {{}, 1, 3, Time{6}}});
}

TEST_CASE("the runs of a table make the same table again") {
    std::random_device seed;
    std::mt19937 random(seed());
    for (int i = 0; i < 300; ++i) {
        const auto jobs = static_cast<std::uint32_t>(random() % 4 + 1);
        const auto bands = static_cast<std::uint32_t>(random() % 12 + 2);
        DeadlineTable table(jobs, bands);
        for (auto n = random() % 10; n != 0; --n) {
            const auto first = static_cast<std::uint16_t>(random() % bands);
            Deadline one{{},
                         first,
                         static_cast<std::uint16_t>(first + random() % 4),
                         Time{random() % 3 == 0 ? MERCURY_DEADLINE_DEFAULT : random() % 3}};
            if (random() % 2 == 0)
                one.job = static_cast<std::uint16_t>(random() % jobs);
            table.set({&one, 1});
        }
        DeadlineTable again(jobs, bands);
        again.set(table.runs());
        CHECK(again == table);
    }
}
