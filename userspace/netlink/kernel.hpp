// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <vector>

#include "common/reactor.hpp"
#include "common/result.hpp"
#include "netlink/types.hpp"

namespace mercury::netlink {

/// The kernel's traffic control, as one process sees it: Socket is the real one, FakeKernel one to
/// test with.
///
/// Requests are answered in any order, while a reactor runs or within wait(). Each calls DONE once;
/// at once if it could not even be sent, and not at all if this object goes away before. DONE may
/// ask for more.
class Kernel {
  public:
    template <typename T>
    using Done = std::function<void(Result<T>)>;

    Kernel() = default;
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;
    virtual ~Kernel() = default;

    virtual void get_links(Done<std::vector<Link>> done) = 0;
    /// Of all devices.
    virtual void get_qdiscs(Done<std::vector<Qdisc>> done) = 0;
    /// Of one qdisc. Those of mercury are the default class, and the jobs and bands that have had a
    /// packet, or have a weight or a limit of their own.
    virtual void get_classes(int ifindex, Handle qdisc, Done<std::vector<Class>> done) = 0;
    virtual void set(const QdiscRequest& request, Done<void> done) = 0;
    virtual void set(const ClassRequest& request, Done<void> done) = 0;

    /// From now on HANDLER hears of what changes, also through requests of this object. Once.
    virtual Result<void> subscribe(std::function<void(const Event&)> handler) = 0;

    /// REACTOR serves it from now on, also a later subscription. Once; REACTOR runs no longer than
    /// this object lives.
    virtual Result<void> attach(Reactor& reactor) = 0;
    /// Without a reactor: blocks until an answer or an event has been handled.
    virtual Result<void> wait() = 0;

    // The same requests for those who do nothing else: they block until there is the answer. Not
    // from within a handler.
    Result<std::vector<Link>> links();
    Result<std::vector<Qdisc>> qdiscs();
    Result<std::vector<Class>> classes(int ifindex, Handle qdisc);
    Result<void> apply(const QdiscRequest& request);
    Result<void> apply(const ClassRequest& request);
};

}  // namespace mercury::netlink
