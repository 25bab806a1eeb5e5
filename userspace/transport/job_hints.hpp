// SPDX-License-Identifier: MIT
//
// One end of a push-pull job as mercuryd knows it: its connections get marks without a privilege.
//
// What a class carries one way is a layer, and a band, of its own: replies first, by class, then
// pushes. Each end declares all of them, under the name of the job, although it sends one half of
// them only: then a worker and a server that run on one host as the same user are one job there,
// and what the server has summed leaves before what the worker still has to push.
//
// Marks do not leave a host, so the two daemons need not agree on a number for the job. What they
// agree on is the band, since both ends declare the same layers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "common/fd.hpp"
#include "hints/client.hpp"
#include "transport/marking_status.hpp"

namespace mercury::transport {

/// The layer that replies, or pushes, of a class are. There are twice as many as CLASSES.
constexpr std::size_t layer_of_pulls(std::size_t priority_class) {
    return priority_class;
}
constexpr std::size_t layer_of_pushes(std::size_t priority_class, std::size_t classes) {
    return classes + priority_class;
}

class JobHints {
  public:
    /// Is told of every change but of the counts, and not while the daemon is still to answer.
    using Changed = std::function<void(const MarkingStatus& status)>;

    /// PATH is the daemon's; "": the usual place. BYTES are those of each class, which travel each
    /// way. Waits for PATIENCE at most until the daemon has answered, and so does assign().
    JobHints(const std::string& path, const std::string& job,
             const std::vector<std::uint64_t>& bytes, std::chrono::milliseconds patience,
             Changed changed = {});

    /// SOCKET, which has sent nothing yet, is to carry LAYER.
    void assign(const Fd& socket, std::size_t layer);
    /// An iteration begins, unless ROUND has been begun before.
    void begin(std::uint64_t round);
    /// Does what is due, and never waits. Good times are those when nothing is underway.
    void dispatch();
    /// From now on nothing waits.
    void stop_waiting() { client_.set_timeout(std::chrono::milliseconds{0}); }

    /// From any thread.
    MarkingStatus status() const;

  private:
    void look(hints::Outcome outcome);

    hints::Client client_;
    Changed changed_;
    std::uint64_t round_ = 0;
    std::string impossible_;  // why the library does not take the job; "": it does
    std::string refused_;     // what the daemon has said last of a connection that it did not mark
    MarkingStatus told_;

    mutable std::mutex mutex_;
    MarkingStatus status_;
};

}  // namespace mercury::transport
