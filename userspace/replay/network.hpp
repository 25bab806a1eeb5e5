// SPDX-License-Identifier: MIT
//
// The emulated network: hosts around a switch, each a network namespace.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <netinet/in.h>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "common/units.hpp"
#include "replay/sockets.hpp"

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

constexpr const char* host_link = "eth0";  // in every host
constexpr std::size_t hosts_min = 2;
constexpr std::size_t hosts_max = 64;
constexpr unsigned mtu_min = 576;
constexpr unsigned mtu_max = 9000;
constexpr unsigned switch_queues_max = 8;
/// A port must hold one whole GSO packet in each of its queues: 64 KiB and the headers.
constexpr std::uint64_t switch_queue_bytes_min = std::uint64_t{72} * 1024;

/// The queues of each port of the switch, towards a host. They are served in strict order.
struct SwitchSettings {
    std::uint64_t buffer = 2'000'000;  // bytes a port, shared by its queues
    unsigned queues = 1;               // 1 is a FIFO

    /// What one queue may hold. Switches share a memory among queues and stop each at a threshold,
    /// commonly what is still free: two that are full have a third each.
    std::uint64_t queue_bytes() const { return buffer / std::min(queues, 3U); }

    friend bool operator==(const SwitchSettings&, const SwitchSettings&) = default;
};

/// The queue, 0 is served first, of a packet with this DSCP: its class selector (the upper three
/// bits) decides. What has none is last, and those above share the first if there are too few: with
/// two queues CS1 to CS7 go before CS0, with eight CS7 before CS6 before ...
unsigned switch_queue_of(unsigned dscp, unsigned queues);

struct NetworkSettings {
    std::size_t hosts = hosts_min;
    Rate rate{10'000'000'000};                                      // of each link, both ways
    std::chrono::nanoseconds delay{std::chrono::microseconds(25)};  // from host to host
    unsigned mtu = 1500;

    /// Under each host's shaper. The first line is for `tc qdisc add dev DEV parent 1:1
    /// handle 10:`, each further one for `tc OBJECT add dev DEV`, as in
    /// "filter parent 10: basic match meta(nf_mark eq 0) flowid 10:2".
    std::vector<std::string> qdisc{"pfifo limit 100000"};

    /// Without it no port is ever short of rate or buffer.
    std::optional<SwitchSettings> ports;
};

/// Whatever the kernel and tc cannot say before a network is built.
Result<void> check(const NetworkSettings& settings);

/// Packets lost, as the queues saw them: a GSO packet counts once, whatever its size.
struct Drops {
    std::vector<std::uint64_t> hosts;  // in each host's own queues
    std::vector<std::uint64_t> ports;  // in the switch, towards each host

    std::uint64_t total() const;
};

/// Hosts around one switch. Each host shapes what it sends to the rate, with the qdisc under test
/// below the shaper. Then comes the delay, and then the port of the switch towards the receiver:
/// a shaper of the same rate over the port's queues.
///
/// The shaper is tbf with every qdisc under test, sch_mercury too although it can shape by
/// itself: then only the order of the packets differs between the cases.
///
/// Neighbours and the switch's table are fixed and IPv6 is off: the links carry only what the
/// program sends.
class Network {
  public:
    static Result<Network> build(const NetworkSettings& settings);

    const NetworkSettings& settings() const { return settings_; }
    std::size_t size() const { return hosts_.size(); }
    const Namespace& host(std::size_t index) const { return hosts_[index]; }
    in_addr address(std::size_t host) const;

    /// Changes the rate of one host's link, both ways, under traffic. From any thread.
    Result<void> set_rate(std::size_t host, Rate rate) const;

    /// So far.
    Result<Drops> drops() const;

  private:
    Network(const NetworkSettings& settings, Namespace middle, std::vector<Namespace> hosts)
        : settings_(settings), middle_(std::move(middle)), hosts_(std::move(hosts)) {}

    Result<void> configure_switch() const;
    Result<void> configure_host(std::size_t index) const;

    NetworkSettings settings_;
    Namespace middle_;  // the switch
    std::vector<Namespace> hosts_;
};

struct Connection {
    Fd from;
    Fd to;
};

/// One connection between two hosts. ENDPOINT says which port TO listens at and how both ends are
/// marked; its address is filled in.
Result<Connection> connect_hosts(const Network& network, std::size_t from, std::size_t to,
                                 Endpoint endpoint);

}  // namespace mercury::replay
