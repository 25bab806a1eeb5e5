// SPDX-License-Identifier: MIT
//
// The kernel's side: mercury qdiscs, on whatever device, get the deadlines of the jobs; configured
// devices get their qdisc. No other qdisc is ever touched.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/reactor.hpp"
#include "config/changes.hpp"
#include "config/devices.hpp"
#include "daemon/registry.hpp"
#include "hints/protocol.hpp"
#include "netlink/kernel.hpp"

namespace mercury::daemon {

/// Whatever happens is waited for a little, so that many changes are one; then the kernel is asked
/// what there is, if that may have changed, and told what there should be.
///
/// A job only brings the deadline of a band forward: its own, which is 100 ms unless it was set,
/// keeps the TCP connections of a starved band from timing out. (Measured, with VGG-16's order at
/// 100 Mbit/s: with deadlines of 2 s each starved connection timed out once, with 100 ms none.)
///
/// A band for which a job says nothing, or whose job has ended, has the deadline that it has in job
/// 0, which belongs to nobody here. Deadlines and weights of the configuration are set when a qdisc
/// is first seen or the configuration is read; from then on deadlines of jobs go before them.
class Network {
  public:
    /// KERNEL outlives this object, and calls it back until it is gone.
    Network(netlink::Kernel& kernel, std::vector<DeviceSettings> devices);
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;

    Result<void> start(Reactor& reactor);
    void configure(std::vector<DeviceSettings> devices);
    /// Of job NUMBER; none at all when it has ended.
    void set_deadlines(unsigned number, const Deadlines& deadlines);

    /// Whether the kernel knows all that it is to know.
    bool is_settled() const { return !armed_ && underway_ == 0; }

    /// Of changes asked of the kernel.
    struct Counters {
        std::uint64_t requests = 0;
        std::uint64_t failures = 0;
        std::uint64_t overruns = 0;  // events lost
    };
    const Counters& counters() const { return counters_; }

    /// Devices that carry mercury or are configured to.
    std::vector<hints::Status::Device> status() const;

  private:
    using Times = std::vector<netlink::Time>;  // of the bands of a job, from 0
    struct Key {
        int ifindex = 0;
        netlink::Handle handle;

        friend auto operator<=>(const Key&, const Key&) = default;
    };
    /// A qdisc of kind mercury.
    struct Instance {
        netlink::Handle parent;
        std::uint32_t jobs = 0;
        Times unset;                     // those of job 0
        std::map<unsigned, Times> told;  // by job
        std::string problem;
        bool configured = false;  // the configuration's own deadlines have been looked at
        bool weighted = false;    // its weights have been set
    };

    void on_event(const netlink::Event& event);
    void soon();
    Result<void> refresh();
    void read_links();
    void read_qdiscs();
    void adopt(const std::vector<netlink::Qdisc>& qdiscs);
    std::vector<DeviceSettings> devices_to_compare();
    bool is_owned(const DeviceSettings& device, const Key& key, const Instance& instance) const;
    void apply_weights();
    void set_weight(const Key& key, std::uint32_t job, std::uint32_t weight);
    void apply_devices(const std::vector<netlink::Qdisc>& qdiscs);
    void apply_deadlines();
    void tell(const Key& key, unsigned number, const Times& times);
    Times wanted(const Instance& instance, const Deadlines& deadlines) const;
    std::string name_of(int ifindex) const;
    void report(std::string& problem, const std::string& device, std::string now);
    template <typename Request>
    void ask(const Request& request, netlink::Kernel::Done<void> done);
    void request_done();

    netlink::Kernel& kernel_;
    std::vector<DeviceSettings> devices_;
    std::map<std::string, std::string> problems_;  // of configured devices, by name
    std::vector<netlink::Link> links_;
    std::map<Key, Instance> instances_;
    std::map<unsigned, Deadlines> deadlines_;  // of jobs; of ended ones until they are told

    Timer timer_;
    bool armed_ = false;
    bool stale_ = true;      // what is known of the kernel
    unsigned underway_ = 0;  // requests
    Counters counters_;
};

}  // namespace mercury::daemon
