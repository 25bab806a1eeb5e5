// SPDX-License-Identifier: MIT
//
// What is printed with --json. Keys are stable, and those of `tc -j` where that has them; see
// mercuryctl(1), "JSON".
#pragma once

#include <nlohmann/json.hpp>

#include "cli/snapshot.hpp"

namespace mercury::cli {

using Json = nlohmann::ordered_json;

Json to_json(const netlink::MercuryOptions& options);
Json to_json(const netlink::Class& one);
/// With its classes.
Json to_json(const QdiscState& state);
/// With its mercury qdiscs.
Json to_json(const DeviceState& device);

/// The short form: of a device with the qdisc at its root, mercury or not.
Json status_json(const DeviceState& device);

}  // namespace mercury::cli
