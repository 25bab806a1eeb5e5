// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "netlink/kernel.hpp"
#include "netlink/message.hpp"

struct mnl_socket;

namespace mercury::netlink {

/// The kernel that this process runs on, in the network namespace that it is in at open().
class Socket final : public Kernel {
  public:
    static Result<std::unique_ptr<Socket>> open();

    void get_links(Done<std::vector<Link>> done) override;
    void get_qdiscs(Done<std::vector<Qdisc>> done) override;
    void get_classes(int ifindex, Handle qdisc, Done<std::vector<Class>> done) override;
    void set(const QdiscRequest& request, Done<void> done) override;
    void set(const ClassRequest& request, Done<void> done) override;
    Result<void> subscribe(std::function<void(const Event&)> handler) override;
    Result<void> attach(Reactor& reactor) override;
    Result<void> wait() override;

  private:
    struct Closer {
        void operator()(mnl_socket* socket) const;
    };
    using Owned = std::unique_ptr<mnl_socket, Closer>;

    struct Request {
        Sequence sequence = 0;
        Datagram bytes{};
        bool is_dump = false;
        unsigned repeats = 0;
        bool interrupted = false;
        std::vector<Answer> answers{};
        Done<std::vector<Answer>> done;
    };

    explicit Socket(Owned requests) : requests_(std::move(requests)) {}

    static Result<Owned> open_socket(unsigned groups);
    static Result<Owned> open_for_requests();
    template <typename T>
    void dump(Datagram bytes, Done<std::vector<T>> done);
    void change(const Result<Datagram>& bytes, Done<void> done);
    void enqueue(Request request);
    void send_waiting();
    void send(Request request);
    void take(Answer answer);
    void end(Sequence sequence, const End& end);
    Result<void> start_again(const Error& error);
    Result<void> watch_requests();
    Result<void> watch_events();
    Result<void> receive_answers();
    Result<void> receive_events();

    Owned requests_;
    Sequence sequence_ = 0;  // the last that was used
    std::deque<Request> waiting_;
    std::unordered_map<Sequence, Request> in_flight_;
    bool dumping_ = false;

    Owned events_;  // apart, so that a flood of events loses no answer
    std::function<void(const Event&)> handler_;
    Reactor* reactor_ = nullptr;
};

}  // namespace mercury::netlink
