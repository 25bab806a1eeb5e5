// SPDX-License-Identifier: MIT
//
// Work in a process of its own, so that a crash, a hang or an interrupt of it ends nothing else.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/fd.hpp"

namespace mercury::replay {

/// Writes one line to the process that waits for the work.
void write_line(const Fd& pipe, std::string_view line);

struct IsolatedOutcome {
    int interrupt = 0;    // the signal that ended the waiting, or 0
    std::string failure;  // why the work did not end by itself; "" if it did
};

/// Forks; the child does WORK and exits, with nothing left of it. LINE gets each line that the
/// child writes, as it comes. If a signal can be read from INTERRUPT_FD (a signalfd, -1: none),
/// the child is killed. This process must have no other thread.
IsolatedOutcome run_isolated(const std::function<void(const Fd& pipe)>& work,
                             const std::function<void(const std::string&)>& line, int interrupt_fd);

}  // namespace mercury::replay
