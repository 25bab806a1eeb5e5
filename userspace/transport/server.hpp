// SPDX-License-Identifier: MIT
//
// The aggregating server: sums what workers push where it arrives, and returns what is finished.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/result.hpp"
#include "transport/address.hpp"
#include "transport/in_flight.hpp"
namespace mercury::transport {

/// What a peer may ask for at most; checked before anything is allocated.
struct ServerLimits {
    std::size_t jobs = 64;
    std::size_t workers = 256;  // of a job
    std::size_t classes = 16;   // of a job
    std::size_t tensors = 65536;
    std::uint64_t memory = std::uint64_t{16} << 30;  // bytes of all sums
    /// That are not of a job, or not yet. One more takes the place of the oldest.
    std::size_t connections = 1024;
};

struct ServerOptions {
    std::string token;  // empty: whoever reaches the port may join
    ServerLimits limits;
    /// Marks as a job's workers ask for: their own (bits of layer and job only), or those of the
    /// daemon of this host, which listens at HINTS; "": at the usual place. False: none.
    bool marks = true;
    std::string hints;
    /// Bytes that may be underway to this server in all connections of a job together, from the
    /// switch's buffer and the bandwidth-delay product; 0: TCP decides.
    std::size_t in_flight = in_flight_default;
    /// A worker that says nothing for so long is dead. As long a connection may take to say what
    /// it is, and one that was refused to close.
    std::chrono::milliseconds silence{10'000};
    /// From a job's first worker to its last.
    std::chrono::milliseconds join_time{60'000};
    /// As long a worker may lag behind the others with a tensor.
    std::chrono::milliseconds stall{300'000};
    /// Answer with whole ranges only, once all of it is summed, as parameter servers without
    /// streams do. For comparisons.
    bool whole_ranges = false;
    /// Told of joins, ends and refusals, in a sentence each.
    std::function<void(const std::string&)> log = [](const std::string&) {};
};

/// Serves any number of jobs in the thread that calls run(); shares nothing with other servers.
class Server {
  public:
    /// Binds and listens. Port 0 is given a free one: ask address().
    static Result<std::unique_ptr<Server>> create(const Address& address, ServerOptions options);

    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server();

    Address address() const;

    /// Until stop(); an error is of the machine, never of a peer.
    Result<void> run();
    /// From any thread or signal handler, also before run(). Workers are told.
    void stop();

  private:
    class Impl;
    explicit Server(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace mercury::transport
