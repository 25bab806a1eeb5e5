// SPDX-License-Identifier: MIT
//
// One list of the options of sch_mercury, one of those of its classes, one of its counters: name,
// attribute and range of each are written here, and what reads, writes or shows them goes through
// the list.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <mercury.h>

#include "netlink/types.hpp"

namespace mercury::netlink {

enum class Unit : std::uint8_t {
    Count,
    Percent,
    Bytes,
    BytesPerSecond,
    Nanoseconds,
    Mask,
    Word,  // one of `words`, by value
    Flag,  // 0 or 1
};

struct Option {
    std::uint16_t attribute;
    std::string_view name;  // as tc(8) calls it
    std::string_view json;  // as `tc -j` calls it
    Unit unit;
    std::uint64_t min;  // of what may be asked for, besides `none`
    std::uint64_t max;
    std::uint64_t unset;                // what a new qdisc or class has
    std::optional<std::uint64_t> none;  // the value for "there is none"
    std::span<const std::string_view> words;
};

namespace detail {

inline constexpr std::array<std::string_view, __MERCURY_KEY_MAX> key_words{"mark", "priority",
                                                                           "dscp"};
inline constexpr std::array<std::string_view, __MERCURY_SPLIT_MAX> split_words{"off", "on", "auto"};

constexpr Option plain(std::uint16_t attribute, std::string_view name, Unit unit, std::uint64_t min,
                       std::uint64_t max, std::uint64_t unset) {
    return {attribute, name, name, unit, min, max, unset, {}, {}};
}

constexpr Option or_none(Option option, std::uint64_t none) {
    option.none = none;
    return option;
}

constexpr Option time(std::uint16_t attribute, std::string_view name, std::string_view json,
                      std::uint64_t unset) {
    return {
        attribute,         name, json, Unit::Nanoseconds, MERCURY_TIME_MIN, MERCURY_TIME_MAX, unset,
        MERCURY_TIME_NONE, {}};
}

constexpr Option word(std::uint16_t attribute, std::string_view name,
                      std::span<const std::string_view> words, std::uint64_t unset) {
    return {attribute, name, name, Unit::Word, 0, words.size() - 1, unset, {}, words};
}

}  // namespace detail

/// Calls VISIT(option, field) for each option but `deadlines`. OPTIONS is a MercuryOptions, const
/// or not.
template <typename Options, typename Visit>
void for_each_option(Options& options, Visit&& visit) {
    using namespace detail;
    visit(plain(TCA_MERCURY_JOBS, "jobs", Unit::Count, MERCURY_JOBS_MIN, MERCURY_JOBS_MAX,
                MERCURY_JOBS_DEFAULT),
          options.jobs);
    visit(plain(TCA_MERCURY_BANDS, "bands", Unit::Count, MERCURY_BANDS_MIN, MERCURY_BANDS_MAX,
                MERCURY_BANDS_DEFAULT),
          options.bands);
    visit(plain(TCA_MERCURY_LIMIT, "limit", Unit::Count, MERCURY_LIMIT_MIN, MERCURY_LIMIT_MAX,
                MERCURY_LIMIT_DEFAULT),
          options.limit);
    visit(plain(TCA_MERCURY_MEMORY_LIMIT, "memory_limit", Unit::Bytes, MERCURY_MEMORY_MIN,
                MERCURY_MEMORY_MAX, MERCURY_MEMORY_DEFAULT),
          options.memory_limit);
    visit(word(TCA_MERCURY_KEY, "key", key_words, MERCURY_KEY_MARK), options.key);
    visit(plain(TCA_MERCURY_MASK, "mask", Unit::Mask, 1, UINT32_MAX, MERCURY_MASK_DEFAULT),
          options.mask);
    visit(plain(TCA_MERCURY_JOB_MASK, "job_mask", Unit::Mask, 0, UINT32_MAX,
                MERCURY_JOB_MASK_DEFAULT),
          options.job_mask);
    visit(plain(TCA_MERCURY_DEFAULT_SHARE, "default_share", Unit::Percent, MERCURY_SHARE_MIN,
                MERCURY_SHARE_MAX, MERCURY_SHARE_DEFAULT),
          options.default_share);
    visit(plain(TCA_MERCURY_RESCUE, "rescue", Unit::Percent, MERCURY_RESCUE_MIN, MERCURY_RESCUE_MAX,
                MERCURY_RESCUE_DEFAULT),
          options.rescue);
    visit(or_none(plain(TCA_MERCURY_RATE, "rate", Unit::BytesPerSecond, MERCURY_RATE_MIN,
                        MERCURY_RATE_MAX, 0),
                  0),
          options.rate);
    visit(word(TCA_MERCURY_SPLIT_GSO, "split_gso", split_words, MERCURY_SPLIT_AUTO),
          options.split_gso);
    visit(plain(TCA_MERCURY_ACK_FIRST, "ack_first", Unit::Flag, 0, 1, 1), options.ack_first);
    visit(time(TCA_MERCURY_CE_THRESHOLD, "ce_threshold", "ce_threshold_ns", MERCURY_TIME_NONE),
          options.ce_threshold);
}

/// The same for what a ClassOptions can change.
template <typename Options, typename Visit>
void for_each_class_option(Options& options, Visit&& visit) {
    using namespace detail;
    visit(plain(TCA_MERCURY_CLASS_WEIGHT, "weight", Unit::Count, MERCURY_WEIGHT_MIN,
                MERCURY_WEIGHT_MAX, MERCURY_WEIGHT_DEFAULT),
          options.weight);
    visit(time(TCA_MERCURY_CLASS_DEADLINE, "deadline", "deadline_ns", MERCURY_DEADLINE_DEFAULT),
          options.deadline);
    visit(or_none(plain(TCA_MERCURY_CLASS_LIMIT, "limit", Unit::Count, MERCURY_LIMIT_MIN,
                        MERCURY_LIMIT_MAX, 0),
                  0),
          options.limit);
}

struct Counter {
    std::uint16_t attribute;
    std::string_view json;    // as `tc -j` calls it
    std::string_view metric;  // as Prometheus does, without its unit and "_total"
    std::string_view help;    // what it counts
    Unit unit;
    bool is_gauge;  // what is there now, or the most that ever was
};

/// Calls VISIT(counter, field) for each counter of a MercuryStatistics; the histogram is none.
template <typename Counters, typename Visit>
void for_each_counter(Counters& counters, Visit&& visit) {
    const auto counter = [&](std::uint16_t attribute, std::string_view json, auto& field,
                             std::string_view metric, std::string_view help,
                             Unit unit = Unit::Count) {
        visit(Counter{attribute, json, metric, help, unit, false}, field);
    };
    const auto gauge = [&](std::uint16_t attribute, std::string_view json, auto& field,
                           std::string_view metric, std::string_view help, Unit unit) {
        visit(Counter{attribute, json, metric, help, unit, true}, field);
    };
    gauge(TCA_MERCURY_STATS_ACTIVE_JOBS, "active_jobs", counters.active_jobs, "active_jobs",
          "jobs that have packets queued", Unit::Count);
    gauge(TCA_MERCURY_STATS_MEMORY, "memory_used", counters.memory, "memory",
          "memory of the packets queued", Unit::Bytes);
    gauge(TCA_MERCURY_STATS_MEMORY_PEAK, "memory_peak", counters.memory_peak, "memory_peak",
          "the most memory that packets queued ever had", Unit::Bytes);
    counter(TCA_MERCURY_STATS_SPLIT, "gso_split", counters.split, "gso_split_packets",
            "GSO packets that were split");
    counter(TCA_MERCURY_STATS_ACKS, "acks_first", counters.acks, "acks_first_packets",
            "pure ACKs that were put first");
    counter(TCA_MERCURY_STATS_CE_MARKS, "ce_marks", counters.ce_marks, "ce_marked_packets",
            "packets that were marked with ECN CE");
    counter(TCA_MERCURY_STATS_DROP_LIMIT, "drop_limit", counters.drop_limit, "limit_drops",
            "packets dropped since a limit of packets was reached");
    counter(TCA_MERCURY_STATS_DROP_MEMORY, "drop_memory", counters.drop_memory, "memory_drops",
            "packets dropped since memory_limit was reached");
    counter(TCA_MERCURY_STATS_DROP_FILTER, "drop_filter", counters.drop_filter, "filter_drops",
            "packets dropped by the verdict of a tc filter");
    counter(TCA_MERCURY_STATS_DROP_GSO, "drop_gso", counters.drop_gso, "gso_drops",
            "GSO packets dropped since they could not be split");
    counter(TCA_MERCURY_STATS_MET, "deadline_met", counters.met, "deadline_met_packets",
            "packets sent by their deadline");
    counter(TCA_MERCURY_STATS_MISSED, "deadline_missed", counters.missed, "deadline_missed_packets",
            "packets sent after their deadline");
    counter(TCA_MERCURY_STATS_LATENESS, "lateness_total_ns", counters.lateness, "lateness",
            "sum of how late packets were sent after their deadline", Unit::Nanoseconds);
    gauge(TCA_MERCURY_STATS_LATENESS_MAX, "lateness_max_ns", counters.lateness_max, "lateness_max",
          "the latest that a packet was ever sent after its deadline", Unit::Nanoseconds);
    counter(TCA_MERCURY_STATS_RESCUED, "rescued_packets", counters.rescued, "rescued_packets",
            "overdue packets sent out of turn");
    counter(TCA_MERCURY_STATS_RESCUED_BYTES, "rescued_bytes", counters.rescued_bytes, "rescued",
            "bytes of overdue packets sent out of turn", Unit::Bytes);
}

/// A value as tc writes it: "9700mbit", "none", "auto", "0xffff".
std::string to_text(const Option& option, std::uint64_t value);

/// What may be asked for; completes "must be": "1 to 62", "1us to 3600s or none".
std::string allowed(const Option& option);

/// The number in a field of any of the lists.
constexpr std::uint64_t number_of(std::uint64_t value) {
    return value;
}
constexpr std::uint64_t number_of(Time value) {
    return value.count();
}

}  // namespace mercury::netlink
