// SPDX-License-Identifier: MIT
//
// Who marks the connections of a job for sch_mercury, and how far that has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mercury::transport {

/// The numbers are those of enum mercury_marking.
enum class MarkedBy : std::uint8_t {
    nobody = 0,
    program = 1,   // with marks of its own
    daemon = 2,    // mercuryd
    priority = 3,  // SO_PRIORITY only: there is no daemon
};

struct MarkingStatus {
    MarkedBy by = MarkedBy::nobody;
    unsigned job = 0;             // its number in the daemon's marks
    std::size_t connections = 0;  // that were told to the daemon, or will be
    std::size_t marked = 0;       // of these, by the daemon
    std::string why;              // there is no daemon, or what it has refused; "": all is well

    friend bool operator==(const MarkingStatus&, const MarkingStatus&) = default;
};

}  // namespace mercury::transport
