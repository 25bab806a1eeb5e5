// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "measure.hpp"
#include "transport/element.hpp"
#include "transport/server.hpp"

namespace mercury::bench {

struct JobOptions {
    std::size_t workers = 1;
    transport::ElementType type = transport::ElementType::f32;
    std::size_t classes = 1;
    std::size_t tensors = 1;       // spread evenly over the classes
    std::size_t tensor_bytes = 0;  // of each
    std::uint64_t bytes = 0;    // to come in, of all workers together; whole rounds are made of it
    std::size_t in_flight = 0;  // towards the server, and to each worker; see ServerOptions
};

/// The server, and peers that speak its protocol and neither make nor use a gradient.
Figures serve_plain_peers(const JobOptions& options);

/// The same, apart: the peers first push a whole round, of which they take nothing back but what
/// fits into the sockets, and then take all of it.
struct Phases {
    Figures push;
    Figures pull;
};
Phases serve_in_phases(const JobOptions& options);

/// The server, and workers as they are, of which each sends and receives in memory of its own.
Figures serve_workers(const JobOptions& options);

}  // namespace mercury::bench
