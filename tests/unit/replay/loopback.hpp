// SPDX-License-Identifier: MIT
//
// TCP connections over loopback, as sockets.hpp makes them between hosts.
#pragma once

#include <utility>

#include <arpa/inet.h>

#include <catch2/catch.hpp>

#include "replay/sockets.hpp"

namespace mercury::replay::test {

inline Endpoint loopback() {
    Endpoint endpoint;
    endpoint.address.sin_family = AF_INET;
    endpoint.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return endpoint;
}

/// The ends of a new connection; the first has connected.
inline std::pair<Fd, Fd> connection_over_loopback() {
    Endpoint endpoint = loopback();
    const auto listener = listen_at(endpoint);
    REQUIRE(listener);
    const auto port = port_of(listener.value());
    REQUIRE(port);
    endpoint.address.sin_port = htons(port.value());
    auto connected = connect_to(endpoint);
    REQUIRE(connected);
    auto accepted = accept_from(listener.value());
    REQUIRE(accepted);
    return {std::move(connected).value(), std::move(accepted).value()};
}

}  // namespace mercury::replay::test
