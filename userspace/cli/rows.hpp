// SPDX-License-Identifier: MIT
//
// The columns that tables and top have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "netlink/histogram.hpp"
#include "netlink/types.hpp"

namespace mercury::cli {

struct ClassRow {
    std::string job;   // "0"; "-" for the default class
    std::string band;  // "3", "all" of a job, "rest" for the default class
    std::optional<std::uint64_t> missed;
    netlink::Histogram sojourn;  // of the class, which must outlive this
};

ClassRow row_of(const netlink::Class& one);

/// The rate that a qdisc shapes to, as tc writes it, or "none".
std::string limit_text(const netlink::Qdisc& qdisc);

}  // namespace mercury::cli
