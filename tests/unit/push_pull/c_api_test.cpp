// SPDX-License-Identifier: MIT
//
// The C functions, which are to do what the C++ ones do and never to throw.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/address.hpp"
#include "transport/in_flight.hpp"
#include "transport/mercury_transport.h"
#include "transport/sockets.hpp"
#include "world.hpp"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

/// How many allocations of this thread succeed before one fails; below 0: all do.
thread_local int allocations_left = -1;

void* allocate(std::size_t size) {
    if (allocations_left == 0)
        throw std::bad_alloc();
    if (allocations_left > 0)
        --allocations_left;
    void* const memory = std::malloc(size);  // NOLINT(cppcoreguidelines-no-malloc)
    if (memory == nullptr)
        throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size);
}
// Also this one, or memory of a sanitizer's own would come to the delete below.
void* operator new(std::size_t size, const std::nothrow_t& /*no*/) noexcept {
    try {
        return allocate(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* memory) noexcept {
    std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
}

namespace {

using mercury::transport::ServerThread;

struct Free {
    void operator()(mercury_worker* worker) const { mercury_worker_free(worker); }
};
using Handle = std::unique_ptr<mercury_worker, Free>;

Handle make(const std::string& server, unsigned rank, unsigned workers) {
    Handle worker(mercury_worker_new("job", rank, workers));
    REQUIRE(worker);
    REQUIRE(mercury_worker_add_server(worker.get(), server.c_str()) == 0);
    return worker;
}

void add(const Handle& worker, const char* key, mercury_element element, std::size_t elements,
         mercury_reduction reduction = MERCURY_REDUCTION_SUM) {
    REQUIRE(mercury_worker_add_tensor(worker.get(), key, element, elements, 0, reduction) == 0);
}

void join(const Handle& worker) {
    const int joined = mercury_worker_join(worker.get());
    INFO(mercury_transport_error());
    REQUIRE(joined == 0);
}

/// Both of a job of two.
std::array<Handle, 2> pair(const ServerThread& server) {
    std::array<Handle, 2> workers;
    for (unsigned rank = 0; rank < 2; ++rank) {
        workers[rank] = make(server.address(), rank, 2);
        add(workers[rank], "first", MERCURY_ELEMENT_F32, 3);
        add(workers[rank], "second", MERCURY_ELEMENT_BF16, 2, MERCURY_REDUCTION_MEAN);
        join(workers[rank]);
    }
    return workers;
}

std::uint64_t push(const Handle& worker, std::size_t index, std::vector<float>& buffer) {
    std::uint64_t round = 0;
    const int pushed = mercury_worker_push_pull(worker.get(), index, buffer.data(),
                                                buffer.size() * sizeof(float), &round);
    INFO(mercury_transport_error());
    REQUIRE(pushed == 0);
    return round;
}

/// What a call that must fail gives as its reason.
std::string reason(int outcome) {
    REQUIRE(outcome == MERCURY_FAILED);
    return mercury_transport_error();
}

/// Waits for what callbacks say.
struct Told {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::optional<std::string>> outcomes;  // the error of each, if there is one

    static void callback(void* context, const char* error) {
        auto& told = *static_cast<Told*>(context);
        const std::lock_guard lock(told.mutex);
        told.outcomes.push_back(error == nullptr ? std::nullopt : std::optional(error));
        told.changed.notify_all();
    }
    std::optional<std::string> await(std::size_t number) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return outcomes.size() > number; });
        return outcomes[number];
    }
};

}  // namespace

TEST_CASE("C: two workers get the sum and the mean", "[c]") {
    const ServerThread server;
    const auto workers = pair(server);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        std::vector<float> first{1, 2, 3};
        std::vector<float> second{10, 20, 30};
        CHECK(push(workers[0], 0, first) == round);
        CHECK(push(workers[1], 0, second) == round);
        CHECK(mercury_worker_wait(workers[0].get(), 0, round, -1) == 0);
        CHECK(mercury_worker_wait(workers[1].get(), 0, round, -1) == 0);
        CHECK(first == std::vector<float>{11, 22, 33});
        CHECK(second == first);
    }

    std::size_t index = 77;
    CHECK(mercury_worker_find_tensor(workers[0].get(), "second", &index) == 0);
    CHECK(index == 1);
    std::array<std::uint16_t, 2> ones{0x3f80, 0x3f80};  // bf16
    std::array<std::uint16_t, 2> threes{0x4040, 0x4040};
    CHECK(mercury_worker_push_pull(workers[0].get(), 1, ones.data(), 4, nullptr) == 0);
    CHECK(mercury_worker_push_pull(workers[1].get(), 1, threes.data(), 4, nullptr) == 0);
    CHECK(mercury_worker_wait(workers[0].get(), 1, 1, -1) == 0);
    CHECK(mercury_worker_wait(workers[1].get(), 1, 1, -1) == 0);
    CHECK(ones == std::array<std::uint16_t, 2>{0x4000, 0x4000});  // 2
}

TEST_CASE("C: a wait may be only for a time", "[c]") {
    const ServerThread server;
    const auto workers = pair(server);
    std::vector<float> first(3, 1);
    std::vector<float> second(3, 2);
    const auto round = push(workers[0], 0, first);
    CHECK(mercury_worker_wait(workers[0].get(), 0, round, 0) == MERCURY_IN_FLIGHT);
    CHECK(mercury_worker_wait(workers[0].get(), 0, round, 1) == MERCURY_IN_FLIGHT);
    push(workers[1], 0, second);
    CHECK(mercury_worker_wait(workers[0].get(), 0, round, 3'600'000) == 0);
    CHECK(mercury_worker_wait(workers[0].get(), 0, round, 0) == 0);
    CHECK_THAT(reason(mercury_worker_wait(workers[0].get(), 0, round + 1, 0)),
               Contains("round 2 of \"first\" was not begun"));
    CHECK(mercury_worker_wait(workers[1].get(), 0, round, -1) == 0);
}

TEST_CASE("C: a callback is told the outcome and may start the next round", "[c]") {
    const ServerThread server;
    const auto workers = pair(server);

    struct Chain {
        Told told;
        mercury_worker* worker = nullptr;
        std::vector<float> buffer = std::vector<float>(3, 1);
        int rounds = 0;

        int start() {
            return mercury_worker_push_pull_then(worker, 0, buffer.data(), 12, &next, this);
        }
        static void next(void* context, const char* error) {
            auto& chain = *static_cast<Chain*>(context);
            if (error == nullptr && ++chain.rounds < 5 && chain.start() != 0)
                error = "the next round did not start";
            if (error != nullptr || chain.rounds == 5)
                Told::callback(&chain.told, error);
        }
    };
    std::array<Chain, 2> chains;
    for (std::size_t i = 0; i < 2; ++i) {
        chains[i].worker = workers[i].get();
        REQUIRE(chains[i].start() == 0);
    }
    for (Chain& chain : chains) {
        CHECK(chain.told.await(0) == std::nullopt);
        CHECK(chain.buffer == std::vector<float>(3, 32));  // doubled five times
    }
}

TEST_CASE("C: a callback cannot wait for what is in flight", "[c]") {
    struct Waiter {
        Told told;
        mercury_worker* worker = nullptr;
        std::vector<float> buffer = std::vector<float>(3, 1);
        std::array<std::uint16_t, 2> own{};

        static void wait(void* context, const char* /*error*/) {
            auto& self = *static_cast<Waiter*>(context);
            std::uint64_t round = 0;
            mercury_worker_push_pull(self.worker, 0, self.buffer.data(), 12, &round);
            const int outcome = mercury_worker_wait(self.worker, 0, round, -1);
            Told::callback(&self.told, outcome == 0 ? nullptr : mercury_transport_error());
        }
    };
    Waiter waiter;  // its buffers are in flight until the workers are gone
    std::array<std::uint16_t, 2> other{};
    const ServerThread server;
    const auto workers = pair(server);
    waiter.worker = workers[0].get();
    REQUIRE(mercury_worker_push_pull_then(workers[0].get(), 1, waiter.own.data(), 4, &Waiter::wait,
                                          &waiter) == 0);
    REQUIRE(mercury_worker_push_pull(workers[1].get(), 1, other.data(), 4, nullptr) == 0);
    const auto told = waiter.told.await(0);
    REQUIRE(told.has_value());
    CHECK_THAT(*told, Contains("a callback cannot wait"));
}

TEST_CASE("C: the end of a job reaches waits, callbacks and all that follows", "[c]") {
    ServerThread server;
    const auto workers = pair(server);
    std::vector<float> first(3, 1);
    std::array<std::uint16_t, 2> second{};
    Told told;
    const auto round = push(workers[0], 0, first);
    REQUIRE(mercury_worker_push_pull_then(workers[0].get(), 1, second.data(), 4, &Told::callback,
                                          &told) == 0);
    const std::string name = "server " + server.address();
    server.stop();

    const std::string why = reason(mercury_worker_wait(workers[0].get(), 0, round, -1));
    CHECK_THAT(why, StartsWith(name));
    CHECK_THAT(why, Contains("the server was stopped"));
    CHECK(told.await(0) == why);
    CHECK(reason(mercury_worker_push_pull(workers[0].get(), 0, first.data(), 12, nullptr)) == why);
    CHECK(reason(mercury_worker_push_pull_then(workers[0].get(), 1, second.data(), 4,
                                               &Told::callback, &told)) == why);
    mercury_worker_free(nullptr);
    CHECK(told.outcomes.size() == 1);
}

TEST_CASE("C: every thread has its own error", "[c]") {
    CHECK(mercury_worker_new(nullptr, 0, 1) == nullptr);
    const std::string here = mercury_transport_error();
    std::string before;
    std::string there;
    std::thread([&] {
        before = mercury_transport_error();
        mercury_worker_join(nullptr);
        there = mercury_transport_error();
    }).join();
    CHECK(here == "the job's name is NULL");
    CHECK(before.empty());
    CHECK(there == "the worker is NULL");
    CHECK(mercury_transport_error() == here);
}

TEST_CASE("C: who marks the connections is told", "[c]") {
    const ServerThread server;
    const Handle worker = make(server.address(), 0, 1);
    mercury_worker* const raw = worker.get();
    mercury_worker_add_tensor(raw, "t", MERCURY_ELEMENT_F32, 4, 0, MERCURY_REDUCTION_SUM);
    mercury_marking_status status{};
    CHECK(reason(mercury_worker_marking(raw, &status, sizeof(status))) ==
          "the worker has not joined yet");
    const bool on = GENERATE(true, false);
    REQUIRE(mercury_worker_set_hints(raw, on ? 1 : 0, "/nowhere/hints.sock") == 0);
    REQUIRE(mercury_worker_join(raw) == 0);
    CHECK(reason(mercury_worker_set_hints(raw, 1, nullptr)) == "the worker has joined already");
    CHECK(reason(mercury_worker_marking(raw, nullptr, 0)) == "status is NULL");
    REQUIRE(mercury_worker_marking(raw, &status, sizeof(status)) == 0);
    CHECK(status.by == (on ? MERCURY_MARKING_PRIORITY : MERCURY_MARKING_NONE));
    CHECK(status.connections == (on ? 3 : 0));
    CHECK(status.marked == 0);
    CHECK(status.job == 0);
    CHECK(status.why ==
          std::string(on ? "no daemon at /nowhere/hints.sock: No such file or directory" : ""));
    // An older program's, which is shorter.
    int by = -1;
    REQUIRE(mercury_worker_marking(raw, reinterpret_cast<mercury_marking_status*>(&by),
                                   sizeof(by)) == 0);
    CHECK(by == status.by);
}

TEST_CASE("C: what is wrong is refused by name, and changes nothing", "[c]") {
    const ServerThread server;
    const Handle worker = make(server.address(), 0, 1);
    mercury_worker* const raw = worker.get();
    const std::array<std::uint32_t, 17> marks{};

    CHECK(reason(mercury_worker_add_server(raw, nullptr)) == "the address is NULL");
    CHECK(reason(mercury_worker_add_tensor(raw, nullptr, 0, 1, 0, 0)) == "the key is NULL");
    CHECK(reason(mercury_worker_add_tensor(raw, "t", 3, 1, 0, 0)) ==
          "there is no element type number 3: 0 to 2");
    CHECK(reason(mercury_worker_add_tensor(raw, "t", 0, 1, 0, 2)) ==
          "there is no reduction number 2: 0 to 1");
    CHECK(reason(mercury_worker_set_order(raw, 2)) == "there is no order number 2: 0 to 1");
    CHECK(reason(mercury_worker_set_token(raw, nullptr)) == "the token is NULL");
    CHECK(reason(mercury_worker_set_marks(raw, 256)) == "marks are of job 0 to 255, not 256");
    CHECK(reason(mercury_worker_set_class_marks(raw, marks.data(), nullptr, 1)) ==
          "the marks are NULL");
    CHECK(reason(mercury_worker_set_class_marks(raw, marks.data(), marks.data(), 17)) ==
          "there are marks for 1 to 16 classes, not 17");
    CHECK(reason(mercury_worker_push_pull(raw, 0, nullptr, 0, nullptr)) ==
          "the worker has not joined yet");
    CHECK_THAT(reason(mercury_worker_join(raw)), Contains("no tensor is given"));

    add(worker, "t", MERCURY_ELEMENT_F32, 2);
    join(worker);
    std::size_t index = 0;
    std::vector<float> buffer{5, 6};
    CHECK(reason(mercury_worker_join(raw)) == "the worker has joined already");
    CHECK(reason(mercury_worker_set_dscp(raw, 1)) == "the worker has joined already");
    CHECK(reason(mercury_worker_find_tensor(raw, "u", &index)) == "there is no tensor \"u\"");
    CHECK(reason(mercury_worker_find_tensor(raw, "t", nullptr)) == "index is NULL");
    CHECK(reason(mercury_worker_push_pull(raw, 0, nullptr, 8, nullptr)) == "the buffer is NULL");
    CHECK(reason(mercury_worker_push_pull(raw, 0, buffer.data(), 7, nullptr)) ==
          "the buffer for \"t\" has 7 bytes instead of 8");
    CHECK_THAT(reason(mercury_worker_push_pull(raw, 1, buffer.data(), 8, nullptr)),
               Contains("no tensor number 1"));
    CHECK(reason(mercury_worker_push_pull_then(raw, 0, buffer.data(), 8, nullptr, nullptr)) ==
          "the callback is NULL");
    CHECK(mercury_worker_wait(raw, 0, push(worker, 0, buffer), -1) == 0);
    CHECK(buffer == std::vector<float>{5, 6});
}

TEST_CASE("C: a failed join may be tried again", "[c]") {
    const auto any = mercury::transport::Address::parse("127.0.0.1:0").value().front();
    std::string address;
    {
        const auto listener = mercury::transport::listen_at(any, 1);
        address = mercury::transport::Address::of_socket(listener.value()).value().to_string();
    }
    const Handle worker = make(address, 0, 1);
    add(worker, "t", MERCURY_ELEMENT_F32, 1);
    REQUIRE(mercury_worker_set_join_time(worker.get(), 1) == 0);
    CHECK_THAT(reason(mercury_worker_join(worker.get())), Contains("server " + address));

    const auto parsed = mercury::transport::Address::parse(address).value().front();
    auto server = mercury::transport::Server::create(parsed, {}).value();
    std::thread thread([&] { CHECK(server->run().has_value()); });
    REQUIRE(mercury_worker_set_join_time(worker.get(), 60'000) == 0);
    join(worker);
    std::vector<float> buffer{4};
    CHECK(mercury_worker_wait(worker.get(), 0, push(worker, 0, buffer), -1) == 0);
    server->stop();
    thread.join();
}

TEST_CASE("C: the token, and the other settings, arrive", "[c]") {
    mercury::transport::ServerOptions options;
    options.token = "open sesame";
    const ServerThread server(std::move(options));
    const Handle stranger = make(server.address(), 0, 1);
    add(stranger, "t", MERCURY_ELEMENT_F32, 1);
    CHECK_THAT(reason(mercury_worker_join(stranger.get())), Contains("token"));

    const Handle worker = make(server.address(), 0, 1);
    add(worker, "t", MERCURY_ELEMENT_F32, 1);
    CHECK(mercury_worker_set_token(worker.get(), "open sesame") == 0);
    CHECK(mercury_worker_set_order(worker.get(), MERCURY_ORDER_RANK) == 0);
    CHECK(mercury_worker_set_dscp(worker.get(), 1) == 0);
    CHECK(mercury_worker_set_in_flight(worker.get(), 65536) == 0);
    CHECK(mercury_worker_set_silence(worker.get(), 20'000) == 0);
    join(worker);
    std::vector<float> buffer{4};
    CHECK(mercury_worker_wait(worker.get(), 0, push(worker, 0, buffer), -1) == 0);

    const Handle impatient = make(server.address(), 0, 1);
    add(impatient, "t", MERCURY_ELEMENT_F32, 1);
    CHECK(mercury_worker_set_silence(impatient.get(), 0) == 0);
    CHECK_THAT(reason(mercury_worker_join(impatient.get())), Contains("silence"));
}

TEST_CASE("C: when there is no memory, calls fail and change nothing", "[c]") {
    const ServerThread server;
    const Handle worker = make(server.address(), 0, 1);
    const std::string key(100, 'k');  // too long to be kept without memory of its own
    const std::string other(100, 'o');

    /// Lets CALL fail for want of memory at each of its allocations, then succeed.
    const auto starve = [](const auto& call) {
        for (int allocations = 0;; ++allocations) {
            allocations_left = allocations;
            const int outcome = call();
            allocations_left = -1;
            if (outcome == 0)
                return allocations;
            CHECK(outcome == MERCURY_FAILED);
            CHECK_THAT(mercury_transport_error(), Contains("no memory"));
        }
    };
    CHECK(starve([&] {
              return mercury_worker_add_tensor(worker.get(), key.c_str(), MERCURY_ELEMENT_F32, 1, 0,
                                               MERCURY_REDUCTION_SUM);
          }) > 0);
    CHECK(starve([&] { return mercury_worker_set_token(worker.get(), other.c_str()); }) > 0);
    allocations_left = 0;
    const mercury_worker* const none = mercury_worker_new("job", 0, 1);
    allocations_left = -1;  // Catch2 needs some
    CHECK(none == nullptr);

    REQUIRE(mercury_worker_set_token(worker.get(), "") == 0);
    join(worker);  // with one tensor of this key
    std::size_t index = 7;
    CHECK(mercury_worker_find_tensor(worker.get(), key.c_str(), &index) == 0);
    CHECK(index == 0);
    std::vector<float> buffer{4};
    std::uint64_t round = 0;
    starve([&] {
        return mercury_worker_push_pull(worker.get(), 0, buffer.data(), sizeof(float), &round);
    });
    CHECK(round == 1);
    CHECK(mercury_worker_wait(worker.get(), 0, round, -1) == 0);
}

TEST_CASE("the bytes in flight follow from the network", "[c]") {
    using mercury::transport::in_flight_for;
    using namespace std::chrono_literals;
    CHECK(in_flight_for(2 << 20, 10'000'000'000, 50us) == 62'500 + (2 << 20) / 6);
    CHECK(in_flight_for(0, 1'000'000'000, 1ms) == 125'000);
    CHECK(in_flight_for(0, 0, 0ns) == 1);
    CHECK(in_flight_for(SIZE_MAX, UINT64_MAX, 3600s) == SIZE_MAX / 2);
    using mercury::transport::window_for;
    CHECK(window_for(0, 4) == 0);
    CHECK(window_for(1 << 20, 4) == 256 << 10);
    CHECK(window_for(1 << 20, 100) == 16 << 10);
    CHECK(mercury_in_flight(2 << 20, 10'000'000'000, 50'000) == 62'500 + (2 << 20) / 6);
    CHECK(mercury_in_flight(SIZE_MAX, UINT64_MAX, UINT64_MAX) == SIZE_MAX / 2);
    CHECK_THAT(mercury_transport_version(), Catch::Matchers::Matches("[0-9]+[.][0-9]+[.][0-9]+"));
}
