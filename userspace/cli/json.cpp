// SPDX-License-Identifier: MIT
#include "cli/json.hpp"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "netlink/histogram.hpp"
#include "netlink/options.hpp"

namespace mercury::cli {
namespace {

using netlink::Counter;
using netlink::Deadline;
using netlink::Handle;
using netlink::Histogram;
using netlink::MercuryStatistics;
using netlink::Option;
using netlink::Statistics;
using netlink::Time;
using netlink::Unit;

Json value_of(const Option& option, std::uint64_t value) {
    if (value == option.none)
        return nullptr;
    switch (option.unit) {
        case Unit::Mask:
        case Unit::Word:
            return netlink::to_text(option, value);
        case Unit::Flag:
            return value != 0;
        default:
            return value;
    }
}

auto adder(Json& json) {
    return [&json](const Option& option, const auto& field) {
        if (field)
            json[std::string(option.json)] = value_of(option, netlink::number_of(*field));
    };
}

Json to_json(const Deadline& deadline) {
    Json json;
    json["job"] = deadline.job ? Json(*deadline.job) : Json(nullptr);
    json["first"] = deadline.first;
    json["last"] = deadline.last;
    json["deadline_ns"] =
        deadline.time == netlink::no_time ? Json(nullptr) : Json(deadline.time.count());
    return json;
}

Json bound(Histogram histogram, std::size_t bucket) {
    const auto below = netlink::upper_bound(histogram, bucket);
    return below ? Json(below->count()) : Json(nullptr);
}

void add_histogram(Json& json, Histogram histogram) {
    if (histogram.empty())
        return;
    for (const auto& [key, part] :
         {std::pair{"sojourn_p50_below_ns", 0.50}, std::pair{"sojourn_p99_below_ns", 0.99}}) {
        if (const auto bucket = netlink::quantile(histogram, part))
            json[key] = bound(histogram, *bucket);
    }
    Json buckets = Json::array();
    for (std::size_t i = 0; i < histogram.size(); ++i) {
        if (histogram[i] != 0)
            buckets.push_back({{"below_ns", bound(histogram, i)}, {"packets", histogram[i]}});
    }
    json["sojourn"] = std::move(buckets);
}

void add(Json& json, const Statistics& statistics) {
    json["bytes"] = statistics.bytes;
    json["packets"] = statistics.packets;
    json["drops"] = statistics.drops;
    json["overlimits"] = statistics.overlimits;
    json["requeues"] = statistics.requeues;
    json["backlog"] = statistics.backlog;
    json["qlen"] = statistics.qlen;
}

void add(Json& json, const std::optional<MercuryStatistics>& statistics) {
    if (!statistics)
        return;
    netlink::for_each_counter(*statistics, [&](const Counter& counter, const auto& field) {
        if (field)
            json[std::string(counter.json)] = netlink::number_of(*field);
    });
    if (statistics->missed && statistics->lateness) {
        json["lateness_mean_ns"] =
            *statistics->missed == 0 ? 0 : statistics->lateness->count() / *statistics->missed;
    }
    add_histogram(json, statistics->sojourn);
}

}  // namespace

Json to_json(const netlink::MercuryOptions& options) {
    Json json;
    netlink::for_each_option(options, adder(json));
    json["deadlines"] = Json::array();
    for (const Deadline& deadline : options.deadlines.value_or(std::vector<Deadline>{}))
        json["deadlines"].push_back(to_json(deadline));
    return json;
}

Json to_json(const netlink::Class& one) {
    Json json;
    const netlink::ClassOptions& options = options_of(one);
    json["classid"] = to_string(one.classid);
    if (options.job)
        json["job"] = *options.job;
    if (options.band)
        json["band"] = *options.band;
    if (one.classid.minor() == MERCURY_MINOR_DEFAULT)
        json["default"] = true;
    if (one.leaf != Handle{})
        json["leaf"] = to_string(one.leaf);
    netlink::for_each_class_option(options, adder(json));
    add(json, one.statistics);
    add(json, one.mercury);
    return json;
}

Json to_json(const QdiscState& state) {
    Json json;
    json["handle"] = to_string(state.qdisc.handle);
    json["parent"] = to_string(state.qdisc.parent);
    if (state.qdisc.options)
        json["options"] = to_json(*state.qdisc.options);
    add(json, state.qdisc.statistics);
    add(json, state.qdisc.mercury);
    json["classes"] = Json::array();
    for (const netlink::Class& one : state.classes)
        json["classes"].push_back(to_json(one));
    return json;
}

Json to_json(const DeviceState& device) {
    Json json;
    json["dev"] = device.link.name;
    json["ifindex"] = device.link.index;
    json["qdiscs"] = Json::array();
    for (const QdiscState& state : device.mercury)
        json["qdiscs"].push_back(to_json(state));
    return json;
}

Json status_json(const DeviceState& device) {
    Json json;
    json["dev"] = device.link.name;
    json["ifindex"] = device.link.index;
    json["up"] = device.link.up;
    json["mtu"] = device.link.mtu;
    json["tx_queues"] = device.link.tx_queues;
    json["root"] = nullptr;
    for (const netlink::Qdisc& qdisc : device.qdiscs) {
        if (qdisc.parent == netlink::root)
            json["root"] = qdisc.kind;
    }
    json["qdiscs"] = Json::array();
    for (const QdiscState& state : device.mercury) {
        Json one = to_json(state);
        one.erase("classes");
        json["qdiscs"].push_back(std::move(one));
    }
    return json;
}

}  // namespace mercury::cli
