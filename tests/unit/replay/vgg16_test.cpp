// SPDX-License-Identifier: MIT
#include "replay/vgg16.hpp"

#include <limits>

#include <catch2/catch.hpp>

using namespace mercury::replay;

TEST_CASE("the built-in VGG-16 has the parameters of the published model", "[vgg16]") {
    const auto built = builtin_vgg16({});
    REQUIRE(built);
    const Profile& profile = built.value();
    REQUIRE(profile.layers.size() == 16);
    CHECK(profile.bytes() == 138'357'544ULL * 4);
    CHECK(profile.layers[0].bytes == (3 * 3 * 3 * 64 + 64) * 4);
    CHECK(profile.layers[13].bytes == (25088ULL * 4096 + 4096) * 4);
    CHECK(profile.layers[15].bytes == (4096 * 1000 + 1000) * 4);
}

TEST_CASE("its times follow from the operations, the rate and the batch", "[vgg16]") {
    // 15.47 G multiplications and as many additions an image; at 1 TFLOP/s that is 30.9 ms.
    const auto slow = builtin_vgg16({1, 1});
    REQUIRE(slow);
    CHECK(std::chrono::duration<double, std::milli>(slow.value().forward()).count() ==
          Approx(30.94).epsilon(0.001));
    CHECK(slow.value().backward() == 2 * slow.value().forward());

    const auto fast = builtin_vgg16({10, 20});
    REQUIRE(fast);
    CHECK(std::chrono::duration<double>(fast.value().forward()).count() ==
          Approx(2 * std::chrono::duration<double>(slow.value().forward()).count()));
}

TEST_CASE("a rate or batch that makes no sense is refused", "[vgg16]") {
    CHECK_FALSE(builtin_vgg16({0, 128}));
    CHECK_FALSE(builtin_vgg16({-1, 128}));
    CHECK_FALSE(builtin_vgg16({std::numeric_limits<double>::quiet_NaN(), 128}));
    CHECK_FALSE(builtin_vgg16({std::numeric_limits<double>::infinity(), 128}));
    CHECK_FALSE(builtin_vgg16({15, 0}));
    CHECK_FALSE(builtin_vgg16({15, 1'000'001}));
}
