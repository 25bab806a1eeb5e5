// SPDX-License-Identifier: MIT
//
// Uploads over loopback, on the real clock: what happens, not how fast.
#include "replay/upload.hpp"

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "loopback.hpp"

using namespace mercury;
using namespace mercury::replay;
using namespace std::chrono_literals;

namespace {

// An upload whose bytes do not arrive by themselves: the test takes from the sender and gives to
// the receiver what it wants.
struct Tapped {
    Fd sent;     // what the sender sends can be read here
    Fd arrives;  // what is written here arrives
    Fd sender;   // a second descriptor of the sender's socket
    std::optional<Upload> upload;

    Tapped() {
        auto [from, sent_end] = test::connection_over_loopback();
        auto [arriving_end, to] = test::connection_over_loopback();
        sent = std::move(sent_end);
        arrives = std::move(arriving_end);
        sender = Fd(dup(from.get()));
        REQUIRE(sender);
        upload.emplace(std::move(from), std::move(to));
    }

    bool take(std::size_t bytes) const {
        std::vector<char> buffer(bytes);
        return recv(sent.get(), buffer.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
    }

    bool give(std::size_t bytes) const {
        const std::vector<char> buffer(bytes);
        return send(arrives.get(), buffer.data(), bytes, MSG_NOSIGNAL) ==
               static_cast<ssize_t>(bytes);
    }

    bool sender_is_stuck() const {
        pollfd writable{sender.get(), POLLOUT, 0};
        return poll(&writable, 1, 0) == 0;
    }
};

// The limit is there for the test to end if what it waits for never happens.
template <typename Condition>
bool eventually(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > limit)
            return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

bool is_at_its_end(const Fd& socket) {
    std::vector<char> buffer(1 << 20);
    ssize_t got = 0;
    while ((got = recv(socket.get(), buffer.data(), buffer.size(), 0)) > 0) {
    }
    return got == 0;
}

}  // namespace

TEST_CASE("an upload does not stop sending", "[upload]") {
    const Tapped tapped;
    CHECK(tapped.take(32 << 20));
}

TEST_CASE("an upload counts what has arrived, and not what was sent", "[upload]") {
    const Tapped tapped;
    REQUIRE(tapped.take(1 << 20));
    CHECK(tapped.upload->received() == 0);
    CHECK(tapped.upload->goodput() == 0);

    REQUIRE(tapped.give(100'000));
    CHECK(eventually([&] { return tapped.upload->received() == 100'000; }));
    CHECK(tapped.upload->goodput() > 0);
    REQUIRE(tapped.give(1));
    CHECK(eventually([&] { return tapped.upload->received() == 100'001; }));
}

TEST_CASE("an upload that is stuck ends with its object", "[upload]") {
    Tapped tapped;
    REQUIRE(eventually([&] { return tapped.sender_is_stuck(); }));
    tapped.upload.reset();
    CHECK(is_at_its_end(tapped.sent));
    CHECK(is_at_its_end(tapped.arrives));
    CHECK(send(tapped.sender.get(), "", 1, MSG_NOSIGNAL) == -1);
    CHECK(errno == EPIPE);
}

TEST_CASE("an upload that has hardly begun ends with its object", "[upload]") {
    for (int i = 0; i < 100; ++i)
        Tapped();
}

TEST_CASE("an upload bears that the other end hangs up", "[upload]") {
    Tapped tapped;
    REQUIRE(tapped.give(1000));
    REQUIRE(eventually([&] { return tapped.upload->received() == 1000; }));
    tapped.sent = Fd();
    tapped.arrives = Fd();
    // The sender's thread has met the same error, without a signal.
    REQUIRE(eventually([&] { return send(tapped.sender.get(), "", 1, MSG_NOSIGNAL) == -1; }));
    CHECK(tapped.upload->received() == 1000);
}
