// SPDX-License-Identifier: MIT
//
// How far an experiment is and how long it will still take, for the person who waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

#include "replay/cluster_case.hpp"

namespace mercury::replay {

/// In virtual time computing costs nothing, so that only the network and the profile count.
bool virtual_time();

/// How long CASE takes the person who waits, as far as can be said before it has run.
double expected_seconds(const ClusterCase& one, bool in_virtual_time);

/// The clock on the wall, which a guest with virtual time has none of: there it is asked of the
/// machine around it, by the time stamp of a file in a folder of that machine.
class WallClock {
  public:
    /// SCRATCH is written and removed for each look at the clock.
    WallClock(bool in_virtual_time, std::string scratch);

    double seconds() const;

  private:
    bool virtual_;
    std::string scratch_;
};

/// "35 s", "4 min", "1 h 20 min"
std::string duration_for_people(double seconds);

/// One line that is written over and over on a terminal, or a line for each case elsewhere.
class ProgressLine {
  public:
    /// WORK: expected seconds of all cases.
    ProgressLine(std::FILE* out, bool terminal, std::size_t cases, double work)
        : out_(out), terminal_(terminal), cases_(cases), work_left_(work) {}

    void begin(const std::string& name, double work);
    /// PART of the case is done, ELAPSED seconds after the start of the experiment.
    void update(const std::string& detail, double part, double elapsed);
    void end(const std::string& outcome, double elapsed);

    /// Leaves the terminal's line to others.
    void clear() const;

  private:
    std::string time_left(double part, double elapsed) const;

    std::FILE* out_;
    bool terminal_;
    std::size_t cases_;
    std::size_t number_ = 0;  // of the case, from 1
    std::string name_;
    double work_ = 0;       // of the case
    double work_done_ = 0;  // of those before it
    double work_left_;      // from this case on
};

}  // namespace mercury::replay
