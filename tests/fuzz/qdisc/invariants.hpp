// SPDX-License-Identifier: MIT
//
// What must hold of a mercury, as far as its statistics show it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "netlink.hpp"

namespace fuzz {

/// Something does not add up.
struct Violation : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// One look at a device: its qdiscs, the classes of one of them, the qdiscs again.
struct Look {
    std::vector<Entry> qdiscs;
    std::vector<Entry> classes;
    std::vector<Entry> again;

    /// Nothing moved while it was taken, so that its parts are of one moment.
    bool is_still() const { return qdiscs == again; }
};

Look look_at(Route& route, int ifindex, std::uint32_t mercury);

/// What there is, for a message about what is wrong with it.
std::string describe(const Look& look);

/// Check a still look at a mercury; throws Violation. counts_all: the child of its default class
/// has counted all that it carried.
void check(const Look& look, std::uint32_t mercury, bool counts_all);

/// Whether all qdiscs are empty; a mercury that says so must hold no memory and have no active
/// job, or it is a Violation.
bool is_empty(const std::vector<Entry>& qdiscs);

}  // namespace fuzz
