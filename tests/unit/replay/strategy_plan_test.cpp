// SPDX-License-Identifier: MIT
#include "replay/strategy_plan.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include <catch2/catch.hpp>

#include "replay/strategy_ring.hpp"
#include "strategy_test_rig.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace mercury::replay::test;

namespace {

void check_complete(const Plan& plan, const Profile& profile, std::size_t servers) {
    std::uint32_t next = 0;
    for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
        const auto [first, end] = plan.of_layer(layer);
        CHECK(first == next);
        std::uint64_t bytes = 0;
        for (std::uint32_t i = first; i < end; ++i) {
            const Chunk& chunk = plan.chunks()[i];
            CHECK(chunk.layer == layer);
            CHECK(chunk.server < servers);
            CHECK(chunk.bytes > 0);
            bytes += chunk.bytes;
        }
        CHECK(bytes == profile.layers[layer].bytes);
        next = end;
    }
    CHECK(next == plan.chunks().size());
}

}  // namespace

TEST_CASE("every byte of a model is in one chunk", "[strategy]") {
    const Profile profile =
        profile_of({1, 2, 3, 1000, 1001, 7, 1, std::uint64_t{5'000'000'000}, 160'000});
    const auto servers = GENERATE(as<std::size_t>{}, 1, 2, 3, 7, 8, 64);
    check_complete(Plan::shards(profile, servers), profile, servers);
    check_complete(Plan::slices(profile, servers, 160'000), profile, servers);
}

TEST_CASE("shards differ by a byte at most", "[strategy]") {
    const auto bytes = GENERATE(as<std::uint64_t>{}, 1, 2, 5, 1'000'001,
                                std::numeric_limits<std::uint64_t>::max() - 1);
    const auto servers = GENERATE(as<std::size_t>{}, 1, 3, 8);
    const Plan plan = Plan::shards(profile_of({bytes}), servers);
    CHECK(plan.chunks().size() == std::min<std::uint64_t>(bytes, servers));
    for (const Chunk& chunk : plan.chunks()) {
        CHECK(chunk.bytes >= bytes / servers);
        CHECK(chunk.bytes <= bytes / servers + 1);
    }
}

TEST_CASE("slices are dealt to the servers in turn, across layers", "[strategy]") {
    const Plan plan = Plan::slices(profile_of({250, 100, 1, 100}), 3, 100);
    const std::vector<Chunk> expected{{0, 0, 100}, {0, 1, 100}, {0, 2, 50},
                                      {1, 0, 100}, {2, 1, 1},   {3, 2, 100}};
    CHECK(plan.chunks() == expected);
}

TEST_CASE("buckets are filled from the last layer, the first one is small", "[strategy]") {
    const Profile profile = profile_of({10, 60, 50, 40, 7, 5, 8});
    const auto buckets = fill_buckets(profile, 10, 100);
    std::vector<std::vector<std::size_t>> layers;
    std::uint64_t bytes = 0;
    for (const Bucket& bucket : buckets) {
        layers.push_back(bucket.layers);
        bytes += bucket.bytes;
    }
    CHECK(layers == std::vector<std::vector<std::size_t>>{{6, 5}, {4, 3, 2, 1}, {0}});
    CHECK(bytes == profile.bytes());
    CHECK(buckets[1].bytes == 157);
}
