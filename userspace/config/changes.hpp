// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "config/devices.hpp"
#include "netlink/kernel.hpp"
#include "netlink/types.hpp"

namespace mercury {

struct OptionChange {
    std::string name;
    std::string from;  // empty: it comes with the qdisc
    std::string to;
};

/// What makes one qdisc of a device as it is configured.
struct Change {
    std::string device;
    std::string replaces;  // the kind of the qdisc that goes; empty: mercury is there, and changed
    std::vector<OptionChange> options;
    netlink::QdiscRequest request;
    std::vector<netlink::ClassRequest> classes;  // then

    /// Or there is something to do for classes only.
    bool changes_qdisc() const {
        return request.verb != netlink::Verb::Change ||
               request.options != netlink::MercuryOptions{};
    }
};

struct Changes {
    std::vector<Change> changes;
    std::vector<std::string> missing;  // configured devices that there are not
};

/// From what the kernel has to what DEVICES say, in this order. A second time there is nothing to
/// do. CLASSES are needed where weights are configured.
Changes changes_to(const std::vector<DeviceSettings>& devices,
                   const std::vector<netlink::Link>& links,
                   const std::vector<netlink::Qdisc>& qdiscs,
                   const std::vector<netlink::Class>& classes = {});

/// Asks KERNEL for it, and waits.
Result<void> make(netlink::Kernel& kernel, const Change& change);

}  // namespace mercury
