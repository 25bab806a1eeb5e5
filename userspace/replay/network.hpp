// SPDX-License-Identifier: MIT
//
// The emulated network: two hosts joined by a switch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include <netinet/in.h>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "common/units.hpp"

namespace mercury::replay {

/// A network namespace of our own, without a name: the kernel removes it and all its links when
/// the last descriptor is closed, so nothing is left behind however this process ends.
class Namespace {
  public:
    static Result<Namespace> create();

    /// What `ip link ... netns` takes.
    std::string path() const;

    /// Runs ACTION in the namespace, on the calling thread. Sockets and child processes made
    /// there stay in it.
    template <typename T>
    Result<T> run(const std::function<Result<T>()>& action) const {
        const Inside inside(*this);
        if (!inside.entered())
            return inside.entered().error();
        return action();
    }

  private:
    explicit Namespace(Fd fd) : fd_(std::move(fd)) {}

    /// Enters, and returns home when it goes.
    class Inside {
      public:
        explicit Inside(const Namespace& target);
        Inside(const Inside&) = delete;
        Inside& operator=(const Inside&) = delete;
        ~Inside();
        const Result<void>& entered() const { return entered_; }

      private:
        Fd home_;
        Result<void> entered_;
    };

    Fd fd_;
};

struct NetworkSettings {
    Rate rate{10'000'000'000};
    std::chrono::nanoseconds delay{std::chrono::microseconds(25)};  // each way
    std::string qdisc;                                              // as for tc, under the shaper
};

/// worker -- switch -- server. Each host shapes what it sends to the rate, with the qdisc under
/// test below the shaper; the switch adds the delay to what leaves it, and never queues for want
/// of rate.
///
/// The shaper is tbf with every qdisc under test, sch_mercury too although it can shape by
/// itself: then only the order of the packets differs between the arms.
class Network {
  public:
    static Result<Network> build(const NetworkSettings& settings);

    const Namespace& worker() const { return worker_; }
    const Namespace& server() const { return server_; }
    sockaddr_in server_address() const;

    /// Packets lost in any queue so far.
    Result<std::uint64_t> drops() const;

  private:
    Network(Namespace worker, Namespace server, Namespace middle)
        : worker_(std::move(worker)), server_(std::move(server)), middle_(std::move(middle)) {}

    Namespace worker_;
    Namespace server_;
    Namespace middle_;  // the switch
};

}  // namespace mercury::replay
