// SPDX-License-Identifier: MIT
//
// What all commands look at.
#pragma once

#include "netlink/snapshot.hpp"

namespace mercury::cli {

using netlink::DeviceState;
using netlink::options_of;
using netlink::QdiscState;
using netlink::read_snapshot;
using netlink::Snapshot;

/// What has been counted since EARLIER; what is there now stays as it is in NOW. A qdisc or class
/// that is new has counted from 0.
Snapshot since(const Snapshot& earlier, const Snapshot& now);

}  // namespace mercury::cli
