// SPDX-License-Identifier: MIT
//
// Where passed descriptors are touched. Whoever passes one can make almost any call on it take as
// long as he likes: closing the last descriptor of a socket with SO_LINGER waits for its peer, a
// setsockopt() for the lock that a sendmsg() holds while it faults in a page that he serves, and
// closing a file in user space for the process that serves it. None of that may keep the reactor
// from serving others, so each user has a thread for what it passes.
#pragma once

#include <functional>
#include <memory>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "common/result.hpp"

namespace mercury::daemon {

using Work = std::function<void()>;

/// Work from other threads for the reactor's.
class Inbox {
  public:
    Inbox();
    ~Inbox();
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;

    /// REACTOR does what is posted from now on, until detach().
    Result<void> attach(Reactor& reactor);
    void detach(Reactor& reactor);
    /// From any thread.
    void post(Work work);

  private:
    struct Queue;
    std::unique_ptr<Queue> queue_;
};

/// Does one thing after the other, in a thread that exists from the first on. A lane that goes away
/// first does what was posted, but nobody waits for it.
class Lane {
  public:
    Lane() = default;
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    void post(Work work);

  private:
    struct Queue;
    static void run(const std::shared_ptr<Queue>& queue);

    std::shared_ptr<Queue> queue_;
};

}  // namespace mercury::daemon
