// SPDX-License-Identifier: MIT
#include "cli/rows.hpp"

#include <fmt/format.h>

#include "cli/snapshot.hpp"
#include "common/units.hpp"

namespace mercury::cli {

ClassRow row_of(const netlink::Class& one) {
    const netlink::ClassOptions& options = options_of(one);
    ClassRow row{"-", "rest", {}, {}};
    if (options.job) {
        row.job = fmt::format("{}", *options.job);
        row.band = options.band ? fmt::format("{}", *options.band) : "all";
    }
    if (one.mercury) {
        row.missed = one.mercury->missed;
        row.sojourn = one.mercury->sojourn;
    }
    return row;
}

std::string limit_text(const netlink::Qdisc& qdisc) {
    const std::uint64_t rate = qdisc.options ? qdisc.options->rate.value_or(0) : 0;
    return rate == 0 ? "none" : to_string(Rate{rate * 8});
}

}  // namespace mercury::cli
