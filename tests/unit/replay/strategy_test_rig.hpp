// SPDX-License-Identifier: MIT
//
// What the tests of the strategies share: jobs on this host, and a peer that speaks by hand.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "replay/channel.hpp"
#include "replay/strategies.hpp"
#include "replay/strategy_connect.hpp"

namespace mercury::replay::test {

/// The strategies that work over any sockets.
inline const std::vector<std::string> baselines{
    "fifo", "p3", "bytescheduler", "tictac", "allreduce", "tensorlights", "mercury-user"};

inline Profile profile_of(const std::vector<std::uint64_t>& sizes) {
    Profile profile{"test", "", {}};
    for (const std::uint64_t bytes : sizes)
        profile.layers.push_back({"layer", {}, {}, bytes});
    return profile;
}

inline Job job_of(Profile profile, std::size_t workers, std::size_t servers) {
    Job job;
    job.name = "job";
    job.profile = std::move(profile);
    job.workers.resize(workers);
    job.servers.resize(servers);
    job.first_port = 1;
    return job;
}

inline std::unique_ptr<Exchange> connect(const StrategySpec& spec, const Job& job,
                                         const Connector& connector = over_loopback()) {
    auto strategy = make_strategy(spec);
    INFO((strategy ? "" : strategy.error().message));
    REQUIRE(strategy);
    auto exchange = dynamic_cast<SocketStrategy&>(*strategy.value()).connect_by(job, connector);
    INFO((exchange ? "" : exchange.error().message));
    REQUIRE(exchange);
    return std::move(exchange).value();
}

/// What was wrong with SPEC.
inline std::string refusal(const StrategySpec& spec) {
    const auto strategy = make_strategy(spec);
    REQUIRE_FALSE(strategy);
    return strategy.error().message;
}

struct Sockets {
    Fd node;  // for the node under test
    Fd test;  // for the test
};

inline Sockets connected_sockets() {
    auto connection = over_loopback()(0, 0, {});
    REQUIRE(connection);
    Sockets sockets{std::move(connection.value().from), std::move(connection.value().to)};
    // A test that waits for what never comes fails instead of hanging.
    const timeval patience{60, 0};
    REQUIRE(setsockopt(sockets.test.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ==
            0);
    return sockets;
}

constexpr std::size_t header_size = 20;

inline void read_exactly(const Fd& socket, void* to, std::size_t bytes) {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t got = recv(socket.get(), at, bytes, 0);
        REQUIRE(got > 0);
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

/// The next message: its header, and then its bytes, which are thrown away.
inline Message read_message(const Fd& socket) {
    std::array<unsigned char, header_size> header{};
    read_exactly(socket, header.data(), header.size());
    const auto word = [&](std::size_t index) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i)
            value = value << 8 | header[4 * index + i];
        return value;
    };
    const Message message{word(1), word(2), std::uint64_t{word(3)} << 32 | word(4)};
    std::vector<char> unused(message.bytes);
    read_exactly(socket, unused.data(), unused.size());
    return message;
}

/// The message's header and the first PRESENT of its bytes.
inline void write_message(const Fd& socket, const Message& message, std::uint64_t present) {
    std::vector<unsigned char> bytes{'M', 'R', 'E', 'Y'};
    for (const std::uint32_t word :
         {message.iteration, message.layer, static_cast<std::uint32_t>(message.bytes >> 32),
          static_cast<std::uint32_t>(message.bytes)}) {
        for (int shift = 24; shift >= 0; shift -= 8)
            bytes.push_back(static_cast<unsigned char>(word >> shift));
    }
    bytes.resize(header_size + present);
    REQUIRE(write(socket.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

inline void write_message(const Fd& socket, const Message& message) {
    write_message(socket, message, message.bytes);
}

}  // namespace mercury::replay::test
