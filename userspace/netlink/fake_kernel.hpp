// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/fd.hpp"
#include "netlink/kernel.hpp"

namespace mercury::netlink {

/// A kernel in memory, to test with. It does what sch_mercury does with requests, but for refusing
/// values: refuse_next() does that. Answers and events come as from the real one, later.
class FakeKernel final : public Kernel {
  public:
    FakeKernel();

    void get_links(Done<std::vector<Link>> done) override;
    void get_qdiscs(Done<std::vector<Qdisc>> done) override;
    void get_classes(int ifindex, Handle qdisc, Done<std::vector<Class>> done) override;
    void set(const QdiscRequest& request, Done<void> done) override;
    void set(const ClassRequest& request, Done<void> done) override;
    Result<void> subscribe(std::function<void(const Event&)> handler) override;
    Result<void> attach(Reactor& reactor) override;
    /// An error if nothing is on its way.
    Result<void> wait() override;

    // What happens without a request of this process. Each is an event.

    /// It is new, or has changed.
    void put(const Link& link);
    void put(const Qdisc& qdisc);
    void put(const Class& one);
    /// Its qdiscs go with it.
    void remove_link(int ifindex);
    void remove_qdisc(int ifindex, Handle handle);
    /// Events were lost.
    void overrun();

    /// The next request, of any kind, gets this error and does nothing.
    void refuse_next(std::string message) { refusal_ = Error{std::move(message)}; }

    /// What was asked for so far, refused or not.
    const std::vector<std::variant<QdiscRequest, ClassRequest>>& requests() const {
        return requests_;
    }
    /// Nothing, if there is no such band.
    std::optional<Time> deadline(int ifindex, Handle qdisc, std::uint32_t job,
                                 std::uint32_t band) const;

  private:
    template <typename T>
    void answer(Done<T> done, Result<T> result);
    void emit(Event event);
    void later(std::function<void()> deliver);
    Result<void> deliver();
    Result<void> carry_out(const QdiscRequest& request);
    Result<void> carry_out(const ClassRequest& request);
    Result<void> remove(const QdiscRequest& request);
    Result<void> create(const QdiscRequest& request);
    Qdisc* at(int ifindex, Handle parent);
    const Qdisc* find(int ifindex, Handle handle) const;

    std::vector<Link> links_;
    std::vector<Qdisc> qdiscs_;
    std::vector<Class> classes_;
    std::uint32_t next_major_ = 0x8001;  // as the kernel begins

    std::vector<std::variant<QdiscRequest, ClassRequest>> requests_;
    std::optional<Error> refusal_;
    std::function<void(const Event&)> handler_;
    std::deque<std::function<void()>> on_its_way_;
    Fd ready_;  // eventfd
};

}  // namespace mercury::netlink
