// SPDX-License-Identifier: MIT
#include "cli/snapshot.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "netlink/options.hpp"

namespace mercury::cli {
namespace {

using netlink::Class;
using netlink::Counter;
using netlink::MercuryStatistics;
using netlink::Qdisc;
using netlink::Statistics;

/// A counter that has become smaller is another one, which began at 0.
template <typename T>
T difference(T earlier, T now) {
    return now >= earlier ? now - earlier : now;
}

void subtract(Statistics& now, const Statistics& earlier) {
    for (const auto field : {&Statistics::bytes, &Statistics::packets, &Statistics::drops,
                             &Statistics::overlimits, &Statistics::requeues})
        now.*field = difference(earlier.*field, now.*field);
}

void subtract(MercuryStatistics& now, const MercuryStatistics& earlier) {
    netlink::for_each_counter(now, [&](const Counter& counter, auto& field) {
        netlink::for_each_counter(earlier, [&](const Counter& other, const auto& before) {
            using Value = typename std::decay_t<decltype(field)>::value_type;
            if (other.attribute != counter.attribute || counter.is_gauge || !field || !before)
                return;
            field = Value(difference(netlink::number_of(*before), netlink::number_of(*field)));
        });
    });
    const std::size_t buckets = std::min(now.sojourn.size(), earlier.sojourn.size());
    for (std::size_t i = 0; i < buckets; ++i)
        now.sojourn[i] = difference(earlier.sojourn[i], now.sojourn[i]);
}

template <typename Object>
void subtract_all(Object& now, const Object& earlier) {
    subtract(now.statistics, earlier.statistics);
    if (now.mercury && earlier.mercury)
        subtract(*now.mercury, *earlier.mercury);
}

const QdiscState* find(const Snapshot& snapshot, const Qdisc& qdisc) {
    for (const DeviceState& device : snapshot.devices) {
        for (const QdiscState& state : device.mercury) {
            if (state.qdisc.ifindex == qdisc.ifindex && state.qdisc.handle == qdisc.handle)
                return &state;
        }
    }
    return nullptr;
}

}  // namespace

Snapshot since(const Snapshot& earlier, const Snapshot& now) {
    Snapshot result = now;
    for (DeviceState& device : result.devices) {
        for (QdiscState& state : device.mercury) {
            const QdiscState* const before = find(earlier, state.qdisc);
            if (before == nullptr)
                continue;
            subtract_all(state.qdisc, before->qdisc);
            for (Class& one : state.classes) {
                const auto old = std::ranges::find(before->classes, one.classid, &Class::classid);
                if (old != before->classes.end())
                    subtract_all(one, *old);
            }
        }
    }
    return result;
}

}  // namespace mercury::cli
