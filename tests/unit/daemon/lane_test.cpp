// SPDX-License-Identifier: MIT
#include "daemon/lane.hpp"

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::daemon;

TEST_CASE("a lane does one thing after the other, elsewhere", "[lane]") {
    std::vector<int> done;
    std::promise<void> end;
    const auto here = std::this_thread::get_id();
    std::thread::id there;
    Lane lane;
    for (int i = 0; i < 100; ++i)
        lane.post([&done, i] { done.push_back(i); });
    lane.post([&] {
        there = std::this_thread::get_id();
        end.set_value();
    });
    end.get_future().get();
    REQUIRE(done.size() == 100);
    CHECK(std::is_sorted(done.begin(), done.end()));
    CHECK(there != here);
}

TEST_CASE("nobody waits for a lane that goes away, and it still does what was posted", "[lane]") {
    auto blocked = std::make_shared<std::promise<void>>();
    auto done = std::make_shared<std::promise<void>>();
    {
        Lane lane;
        lane.post([blocked] { blocked->get_future().get(); });
        lane.post([done] { done->set_value(); });
    }
    blocked->set_value();
    done->get_future().get();
}

TEST_CASE("an inbox brings work to the reactor's thread, in order", "[lane]") {
    Reactor reactor;
    Inbox inbox;
    REQUIRE(inbox.attach(reactor));
    std::vector<int> done;
    std::thread other([&] {
        for (int i = 0; i < 100; ++i)
            inbox.post([&done, i] { done.push_back(i); });
        inbox.post([&] { reactor.stop(); });
    });
    REQUIRE(reactor.run());
    other.join();
    REQUIRE(done.size() == 100);
    CHECK(std::is_sorted(done.begin(), done.end()));
}
