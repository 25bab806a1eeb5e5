// SPDX-License-Identifier: MIT
#include "netlink/snapshot.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mercury::netlink {
namespace {

Error no_such_device(const std::string& device, const std::vector<Link>& links) {
    std::vector<std::string> names;
    std::ranges::transform(links, std::back_inserter(names), &Link::name);
    return Error{
        fmt::format("there is no device {}; there are {}", device, fmt::join(names, ", "))};
}

/// A qdisc that goes between the two requests has no classes.
Result<DeviceState> read_device(Kernel& kernel, const Link& link,
                                const std::vector<Qdisc>& qdiscs) {
    DeviceState state{link, {}, {}};
    for (const Qdisc& qdisc : qdiscs) {
        if (qdisc.ifindex != link.index)
            continue;
        state.qdiscs.push_back(qdisc);
        if (!qdisc.mercury)
            continue;
        auto classes = kernel.classes(link.index, qdisc.handle);
        if (!classes)
            return classes.error();
        state.mercury.push_back({qdisc, std::move(classes).value()});
    }
    return state;
}

}  // namespace

Result<Snapshot> read_snapshot(Kernel& kernel, const std::string& device) {
    const auto links = kernel.links();
    if (!links)
        return links.error();
    const auto qdiscs = kernel.qdiscs();
    if (!qdiscs)
        return qdiscs.error();
    Snapshot snapshot{Clock::now(), {}};
    for (const Link& link : links.value()) {
        if (!device.empty() && link.name != device)
            continue;
        auto state = read_device(kernel, link, qdiscs.value());
        if (!state)
            return state.error();
        snapshot.devices.push_back(std::move(state).value());
    }
    if (!device.empty() && snapshot.devices.empty())
        return no_such_device(device, links.value());
    return snapshot;
}

}  // namespace mercury::netlink
