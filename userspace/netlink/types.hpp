// SPDX-License-Identifier: MIT
//
// What the kernel knows of devices, qdiscs and classes, and what it can be asked to do: plain data.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <linux/pkt_sched.h>
#include <mercury.h>

namespace mercury::netlink {

/// Unsigned, so that it holds MERCURY_TIME_NONE.
using Time = std::chrono::duration<std::uint64_t, std::nano>;
constexpr Time no_time{MERCURY_TIME_NONE};

/// Of a qdisc ("1:", minor 0) or a class ("1:5").
struct Handle {
    std::uint32_t value = 0;

    constexpr std::uint32_t major() const { return value >> 16; }
    constexpr std::uint32_t minor() const { return value & 0xffff; }
    /// A class of this qdisc.
    constexpr Handle child(std::uint32_t minor) const {
        return {(value & 0xffff0000U) | (minor & 0xffff)};
    }
    /// The qdisc of this class.
    constexpr Handle qdisc() const { return child(0); }

    friend auto operator<=>(const Handle&, const Handle&) = default;
};

constexpr Handle root{TC_H_ROOT};
constexpr Handle ingress{TC_H_INGRESS};

/// As tc(8) writes it: "1:", "1:fc00", "root", "ingress".
std::string to_string(Handle handle);

struct Link {
    int index = 0;
    std::string name;
    std::string kind;  // "veth", "dummy"; empty for hardware
    bool up = false;
    bool loopback = false;
    std::uint32_t mtu = 0;
    std::uint32_t tx_queues = 0;

    friend bool operator==(const Link&, const Link&) = default;
};

/// What every qdisc and class counts.
struct Statistics {
    std::uint64_t bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t drops = 0;
    std::uint64_t overlimits = 0;
    std::uint64_t requeues = 0;
    std::uint64_t backlog = 0;  // bytes
    std::uint64_t qlen = 0;     // packets

    friend bool operator==(const Statistics&, const Statistics&) = default;
};

/// For a run of bands, of one job or of every.
struct Deadline {
    std::optional<std::uint16_t> job;
    std::uint16_t first = 0;  // band
    std::uint16_t last = 0;   // band, included
    Time time{0};             // after enqueue, or no_time

    friend bool operator==(const Deadline&, const Deadline&) = default;
};

/// TCA_MERCURY_*. In a request, what is not set is left as it is; in a dump, the module did not
/// say. See options.hpp for their names and ranges.
struct MercuryOptions {
    std::optional<std::uint32_t> jobs{};
    std::optional<std::uint32_t> bands{};  // of each job
    std::optional<std::uint32_t> limit{};  // packets
    std::optional<std::uint32_t> memory_limit{};
    std::optional<std::uint8_t> key{};  // enum mercury_key
    std::optional<std::uint32_t> mask{};
    std::optional<std::uint32_t> job_mask{};
    std::optional<std::uint32_t> default_share{};  // per cent
    std::optional<std::uint32_t> rescue{};         // per cent
    std::optional<std::uint64_t> rate{};           // bytes a second, 0: no shaping
    std::optional<std::uint8_t> split_gso{};       // enum mercury_split
    std::optional<std::uint8_t> ack_first{};       // 0 or 1
    std::optional<Time> ce_threshold{};            // or no_time
    /// In a request a later one overrides an earlier one, and bands that none names keep theirs.
    /// A dump lists runs of bands whose deadline is not MERCURY_DEADLINE_DEFAULT, at most
    /// MERCURY_DEADLINES_MAX.
    std::optional<std::vector<Deadline>> deadlines{};

    friend bool operator==(const MercuryOptions&, const MercuryOptions&) = default;
};

/// TCA_MERCURY_CLASS_*. A job has a weight and a limit, a band a deadline and a limit.
struct ClassOptions {
    std::optional<std::uint32_t> job{};   // in dumps only
    std::optional<std::uint32_t> band{};  // in dumps only
    std::optional<std::uint32_t> weight{};
    std::optional<Time> deadline{};        // or no_time
    std::optional<std::uint32_t> limit{};  // packets, 0: none of its own

    friend bool operator==(const ClassOptions&, const ClassOptions&) = default;
};

/// TCA_MERCURY_STATS_*: which of them a qdisc, a job or a band has is said there.
struct MercuryStatistics {
    std::optional<std::uint64_t> memory;  // bytes of truesize queued
    std::optional<std::uint64_t> memory_peak;
    std::optional<std::uint64_t> active_jobs;
    std::optional<std::uint64_t> drop_limit;
    std::optional<std::uint64_t> drop_memory;
    std::optional<std::uint64_t> drop_filter;
    std::optional<std::uint64_t> drop_gso;
    std::optional<std::uint64_t> split;  // GSO packets
    std::optional<std::uint64_t> acks;
    std::optional<std::uint64_t> ce_marks;
    std::optional<std::uint64_t> met;
    std::optional<std::uint64_t> missed;
    std::optional<Time> lateness;  // sum over the missed
    std::optional<Time> lateness_max;
    std::optional<std::uint64_t> rescued;
    std::optional<std::uint64_t> rescued_bytes;
    std::vector<std::uint64_t> sojourn;  // see histogram.hpp

    friend bool operator==(const MercuryStatistics&, const MercuryStatistics&) = default;
};

struct Qdisc {
    int ifindex = 0;
    std::string kind;
    Handle handle;
    Handle parent;  // or root, or ingress
    Statistics statistics;
    // Only of kind mercury:
    std::optional<MercuryOptions> options;
    std::optional<MercuryStatistics> mercury;

    friend bool operator==(const Qdisc&, const Qdisc&) = default;
};

struct Class {
    int ifindex = 0;
    std::string kind;
    Handle classid;
    Handle parent;
    Handle leaf;  // the child qdisc; 0: none, or one without a handle
    Statistics statistics;
    // Only of kind mercury:
    std::optional<ClassOptions> options;
    std::optional<MercuryStatistics> mercury;

    friend bool operator==(const Class&, const Class&) = default;
};

enum class Verb : std::uint8_t {
    Add,      // an error if there is one
    Replace,  // whatever there is
    Change,   // an error if there is none
    Delete,   // the kernel's default takes its place
};

struct QdiscRequest {
    Verb verb = Verb::Add;
    int ifindex = 0;
    Handle parent = root;
    Handle handle{};  // 0: the kernel chooses, or whatever is there
    std::string kind = MERCURY_KIND;
    MercuryOptions options{};  // only sent for kind mercury

    friend bool operator==(const QdiscRequest&, const QdiscRequest&) = default;
};

/// Changes a job or a band.
struct ClassRequest {
    int ifindex = 0;
    Handle classid{};
    ClassOptions options{};  // weight, deadline, limit

    friend bool operator==(const ClassRequest&, const ClassRequest&) = default;
};

/// Has appeared or changed, or is gone.
template <typename T>
struct Changed {
    T now;  // what it was, if it is gone
    bool gone = false;
};

/// Events were lost: whoever keeps a copy of the kernel's state reads everything again.
struct Overrun {};

using Event = std::variant<Changed<Link>, Changed<Qdisc>, Changed<Class>, Overrun>;

}  // namespace mercury::netlink
