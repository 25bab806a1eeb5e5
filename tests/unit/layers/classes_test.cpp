// SPDX-License-Identifier: MIT
#include "layers/classes.hpp"

#include <catch2/catch.hpp>

#include "layers/models.hpp"

using namespace mercury;

namespace {

Profile profile_of(const std::vector<std::uint64_t>& sizes) {
    Profile profile{"test", "", {}};
    for (const auto bytes : sizes)
        profile.layers.push_back({"layer", {}, {}, bytes});
    return profile;
}

std::vector<PriorityClass> classes_of(const Profile& profile, std::size_t max) {
    const auto classes = group_layers(profile, max);
    REQUIRE(classes);
    return classes.value();
}

/// The last layer of each class.
std::vector<std::size_t> cuts(const std::vector<std::uint64_t>& sizes, std::size_t max) {
    std::vector<std::size_t> last;
    for (const auto& entry : classes_of(profile_of(sizes), max))
        last.push_back(entry.last);
    return last;
}

using Cuts = std::vector<std::size_t>;

}  // namespace

TEST_CASE("sixteen equal layers are cut finer towards both ends", "[classes]") {
    const std::vector<std::uint64_t> sizes(16, 100);
    CHECK(cuts(sizes, classes_default) == Cuts{1, 3, 7, 11, 13, 15});
    CHECK(cuts(sizes, 5) == Cuts{1, 3, 7, 11, 15});
    CHECK(cuts(sizes, 4) == Cuts{3, 7, 11, 15});
    CHECK(cuts(sizes, 3) == Cuts{3, 7, 15});
    CHECK(cuts(sizes, 2) == Cuts{7, 15});
    CHECK(cuts(sizes, 1) == Cuts{15});
}

TEST_CASE("small layers needed first do not share a class with bulk behind them", "[classes]") {
    CHECK(cuts({1, 1, 1, 97}, 3) == Cuts{2, 3});
    CHECK(cuts({1, 1, 1, 97}, 2) == Cuts{2, 3});
}

TEST_CASE("classes that would be empty are left out", "[classes]") {
    CHECK(cuts({100, 1, 1, 1}, 3) == Cuts{0, 3});
}

TEST_CASE("who has a class for each layer need not let any share one", "[classes]") {
    CHECK(cuts({10}, 4) == Cuts{0});
    CHECK(cuts({100, 1, 1, 1}, 4) == Cuts{0, 1, 2, 3});
    CHECK(cuts(std::vector<std::uint64_t>(12, 1), 32).size() == 12);
}

TEST_CASE("VGG-16: convolutions, the huge layer, the rest", "[classes]") {
    const auto profile = model_by_name("vgg16", {});
    REQUIRE(profile);
    const auto classes = classes_of(profile.value(), classes_default);
    REQUIRE(classes.size() == 3);
    CHECK(classes[0].last == 12);
    CHECK(classes[1].first == 13);
    CHECK(classes[1].last == 13);
    CHECK(classes[2].last == 15);
}

TEST_CASE("every layer is in exactly one class, in order, whatever the sizes", "[classes]") {
    const auto max = GENERATE(range<std::size_t>(1, 33));
    std::vector<std::uint64_t> sizes;
    std::uint64_t size = 1;
    for (int i = 0; i < 200; ++i) {
        size = size * 6364136223846793005ULL + 1442695040888963407ULL;
        sizes.push_back(1 + (size >> 40) % (i % 7 == 0 ? 10'000'000 : 1'000));
    }
    const Profile profile = profile_of(sizes);
    const auto classes = classes_of(profile, max);

    CHECK(classes.size() <= max);
    std::size_t next = 0;
    std::uint64_t bytes = 0;
    for (const auto& entry : classes) {
        REQUIRE(entry.first == next);
        REQUIRE(entry.last >= entry.first);
        next = entry.last + 1;
        bytes += entry.bytes;
    }
    CHECK(next == sizes.size());
    CHECK(bytes == profile.bytes());
}

TEST_CASE("a number of classes that makes no sense is refused", "[classes]") {
    const auto max = GENERATE(std::size_t{0}, std::size_t{33}, std::size_t{1000});
    const auto classes = group_layers(profile_of({1, 2}), max);
    REQUIRE_FALSE(classes);
    CHECK_THAT(classes.error().message, Catch::Matchers::Contains("1 to 32"));
}

TEST_CASE("class 0 has the mark of band 0, which is layer 1", "[classes]") {
    CHECK(mark_of_class(0, 0) == 1);
    CHECK(mark_of_class(0, 3) == 4);
    CHECK(mark_of_class(7, 3) == 0x70004);
    CHECK(mark_of_class(255, 31) == 0xff0020);
}
