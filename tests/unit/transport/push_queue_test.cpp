// SPDX-License-Identifier: MIT
#include "transport/push_queue.hpp"

#include <initializer_list>
#include <vector>

#include <catch2/catch.hpp>

using mercury::transport::Push;
using mercury::transport::PushQueue;

namespace {

PushQueue queue_of(std::size_t tensors) {
    PushQueue queue;
    for (std::size_t i = 0; i < tensors; ++i)
        queue.expect_tensor();
    return queue;
}

void add(PushQueue& queue, std::initializer_list<Push> pushes) {
    for (const Push& push : pushes)
        queue.add(push);
}

std::vector<Push> take_all(PushQueue& queue) {
    std::vector<Push> pushes;
    while (const auto push = queue.take())
        pushes.push_back(*push);
    return pushes;
}

}  // namespace

TEST_CASE("as they came until the class is complete", "[push_queue]") {
    PushQueue queue = queue_of(4);
    REQUIRE(queue.take() == std::nullopt);
    add(queue, {{1, 3}, {1, 2}, {1, 1}});
    REQUIRE(queue.take() == Push{1, 3});
    REQUIRE(queue.take() == Push{1, 2});
    add(queue, {{1, 0}});
    REQUIRE(take_all(queue) == std::vector<Push>{{1, 0}, {1, 1}});
}

TEST_CASE("of a complete class, what is needed first", "[push_queue]") {
    PushQueue queue = queue_of(4);
    add(queue, {{1, 3}, {1, 2}, {1, 1}, {1, 0}});
    REQUIRE(take_all(queue) == std::vector<Push>{{1, 0}, {1, 1}, {1, 2}, {1, 3}});
    // The next round is not complete yet.
    add(queue, {{2, 3}, {2, 2}, {2, 0}});
    REQUIRE(take_all(queue) == std::vector<Push>{{2, 3}, {2, 2}, {2, 0}});
}

TEST_CASE("an older round goes before a newer one", "[push_queue]") {
    PushQueue queue = queue_of(3);
    add(queue, {{1, 2}, {1, 1}, {1, 0}});
    REQUIRE(queue.take() == Push{1, 0});
    add(queue, {{2, 0}});  // has come back, and is pushed again
    REQUIRE(take_all(queue) == std::vector<Push>{{1, 1}, {1, 2}, {2, 0}});
    add(queue, {{3, 0}, {2, 2}, {2, 1}});
    REQUIRE(take_all(queue) == std::vector<Push>{{2, 1}, {2, 2}, {3, 0}});
}

TEST_CASE("with tensors that not every round has, as they came", "[push_queue]") {
    PushQueue queue = queue_of(3);
    add(queue, {{1, 2}, {1, 0}});
    REQUIRE(take_all(queue) == std::vector<Push>{{1, 2}, {1, 0}});
    add(queue, {{1, 1}});  // only now
    REQUIRE(take_all(queue) == std::vector<Push>{{1, 1}});
    add(queue, {{2, 1}, {2, 0}});
    REQUIRE(take_all(queue) == std::vector<Push>{{2, 1}, {2, 0}});
}

TEST_CASE("an empty class has nothing", "[push_queue]") {
    PushQueue queue = queue_of(0);
    REQUIRE(queue.take() == std::nullopt);
}
