// SPDX-License-Identifier: MIT
#include "netlink/socket.hpp"

#include <array>
#include <cerrno>
#include <span>
#include <type_traits>
#include <variant>

#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/fd.hpp"

namespace mercury::netlink {
namespace {

/// More than the kernel puts into one datagram.
constexpr std::size_t datagram_bytes_max = 65536;
/// Their acknowledgements fit a receive buffer of the usual size several times.
constexpr std::size_t in_flight_max = 64;
constexpr unsigned repeats_max = 20;

enum class Received : std::uint8_t { Datagram, Nothing, Lost };

/// What has come is in DATAGRAM, which points into BUFFER.
Result<Received> receive(const mnl_socket* socket, std::span<std::byte> buffer,
                         std::span<const std::byte>& datagram) {
    const ssize_t size = mnl_socket_recvfrom(socket, buffer.data(), buffer.size());
    if (size >= 0) {
        datagram = buffer.first(static_cast<std::size_t>(size));
        return Received::Datagram;
    }
    if (errno == EAGAIN || errno == EINTR)
        return Received::Nothing;
    if (errno == ENOBUFS || errno == ENOSPC)
        return Received::Lost;
    return system_error("netlink");
}

using Buffer = std::array<std::byte, datagram_bytes_max>;

}  // namespace

void Socket::Closer::operator()(mnl_socket* socket) const {
    mnl_socket_close(socket);
}

Result<Socket::Owned> Socket::open_socket(unsigned groups) {
    Owned socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket || mnl_socket_bind(socket.get(), groups, MNL_SOCKET_AUTOPID) != 0)
        return system_error("netlink");
    return socket;
}

Result<Socket::Owned> Socket::open_for_requests() {
    auto socket = open_socket(0);
    if (!socket)
        return socket;
    auto owned = std::move(socket).value();
    // A sentence with each refusal, and not the request once more. What does not know them does
    // without.
    for (const int option : {NETLINK_EXT_ACK, NETLINK_CAP_ACK}) {
        int on = 1;
        mnl_socket_setsockopt(owned.get(), option, &on, sizeof(on));
    }
    return owned;
}

Result<std::unique_ptr<Socket>> Socket::open() {
    auto requests = open_for_requests();
    if (!requests)
        return requests.error();
    return std::unique_ptr<Socket>(new Socket(std::move(requests).value()));
}

// Requests --------------------------------------------------------------------------------------

template <typename T>
void Socket::dump(Datagram bytes, Done<std::vector<T>> done) {
    enqueue({.sequence = sequence_,
             .bytes = std::move(bytes),
             .is_dump = true,
             .done = [done = std::move(done)](Result<std::vector<Answer>> answers) {
                 if (!answers)
                     return done(answers.error());
                 std::vector<T> objects;
                 for (Answer& answer : answers.value()) {
                     if (auto* const one = std::get_if<Changed<T>>(&answer.body))
                         objects.push_back(std::move(one->now));
                 }
                 done(std::move(objects));
             }});
}

void Socket::change(const Result<Datagram>& bytes, Done<void> done) {
    if (!bytes)
        return done(bytes.error());
    enqueue({.sequence = sequence_,
             .bytes = bytes.value(),
             .done = [done = std::move(done)](const Result<std::vector<Answer>>& answers) {
                 done(answers ? Result<void>{} : answers.error());
             }});
}

void Socket::get_links(Done<std::vector<Link>> done) {
    dump(encode_get_links(++sequence_), std::move(done));
}

void Socket::get_qdiscs(Done<std::vector<Qdisc>> done) {
    dump(encode_get_qdiscs(++sequence_), std::move(done));
}

void Socket::get_classes(int ifindex, Handle qdisc, Done<std::vector<Class>> done) {
    dump(encode_get_classes(++sequence_, ifindex, qdisc), std::move(done));
}

void Socket::set(const QdiscRequest& request, Done<void> done) {
    change(encode(++sequence_, request), std::move(done));
}

void Socket::set(const ClassRequest& request, Done<void> done) {
    change(encode(++sequence_, request), std::move(done));
}

void Socket::enqueue(Request request) {
    waiting_.push_back(std::move(request));
    send_waiting();
}

/// The kernel does one dump of a socket at a time.
void Socket::send_waiting() {
    while (!waiting_.empty() && in_flight_.size() < in_flight_max &&
           !(waiting_.front().is_dump && dumping_)) {
        Request request = std::move(waiting_.front());
        waiting_.pop_front();
        send(std::move(request));
    }
}

void Socket::send(Request request) {
    if (mnl_socket_sendto(requests_.get(), request.bytes.data(), request.bytes.size()) < 0) {
        request.done(system_error("netlink"));
        return;
    }
    dumping_ = dumping_ || request.is_dump;
    in_flight_.insert_or_assign(request.sequence, std::move(request));
}

// Answers ---------------------------------------------------------------------------------------

void Socket::take(Answer answer) {
    const auto found = in_flight_.find(answer.sequence);
    if (found == in_flight_.end())
        return;
    Request& request = found->second;
    request.interrupted = request.interrupted || answer.interrupted;
    if (const auto* const last = std::get_if<End>(&answer.body))
        end(answer.sequence, *last);
    else
        request.answers.push_back(std::move(answer));
}

void Socket::end(Sequence sequence, const End& end) {
    Request request = std::move(in_flight_.extract(sequence).mapped());
    dumping_ = dumping_ && !request.is_dump;
    if (end.error) {
        request.done(*end.error);
    } else if (!request.interrupted) {
        request.done(std::move(request.answers));
    } else if (request.repeats == repeats_max) {
        request.done(Error{"what the kernel has changed faster than it could be read"});
    } else {
        ++request.repeats;
        request.interrupted = false;
        request.answers.clear();
        waiting_.push_front(std::move(request));
    }
    send_waiting();
}

/// With a new socket, since nobody knows what is still to come through the old one.
Result<void> Socket::start_again(const Error& error) {
    auto fresh = open_for_requests();
    if (!fresh)
        return fresh.error();
    if (reactor_ != nullptr)
        reactor_->unwatch(mnl_socket_get_fd(requests_.get()));
    requests_ = std::move(fresh).value();
    dumping_ = false;
    auto watched = reactor_ == nullptr ? Result<void>{} : watch_requests();
    for (auto& [sequence, request] : std::exchange(in_flight_, {}))
        request.done(error);
    send_waiting();
    return watched;
}

Result<void> Socket::receive_answers() {
    alignas(nlmsghdr) Buffer buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    std::span<const std::byte> datagram;
    const auto received = receive(requests_.get(), buffer, datagram);
    if (!received)
        return received.error();
    if (received.value() == Received::Lost)
        return start_again(Error{"the kernel's answer was lost: there was no room for it"});
    if (received.value() != Received::Datagram)
        return {};
    auto answers = decode(datagram);
    if (!answers)
        return start_again(answers.error());
    for (Answer& answer : answers.value())
        take(std::move(answer));
    return {};
}

// Events ----------------------------------------------------------------------------------------

Result<void> Socket::subscribe(std::function<void(const Event&)> handler) {
    auto events = open_socket(RTMGRP_LINK | 1U << (RTNLGRP_TC - 1));
    if (!events)
        return events.error();
    events_ = std::move(events).value();
    handler_ = std::move(handler);
    return reactor_ == nullptr ? Result<void>{} : watch_events();
}

Result<void> Socket::receive_events() {
    alignas(nlmsghdr) Buffer buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    std::span<const std::byte> datagram;
    const auto received = receive(events_.get(), buffer, datagram);
    if (!received)
        return received.error();
    if (received.value() == Received::Nothing)
        return {};
    const auto answers = decode(datagram);
    if (received.value() == Received::Lost || !answers) {
        handler_(Overrun{});
        return {};
    }
    for (const Answer& answer : answers.value()) {
        std::visit(
            [this](const auto& body) {
                if constexpr (!std::is_same_v<std::decay_t<decltype(body)>, End>)
                    handler_(body);
            },
            answer.body);
    }
    return {};
}

// Both ------------------------------------------------------------------------------------------

Result<void> Socket::watch_requests() {
    return reactor_->watch(mnl_socket_get_fd(requests_.get()), EPOLLIN,
                           [this](std::uint32_t /*events*/) { return receive_answers(); });
}

Result<void> Socket::watch_events() {
    return reactor_->watch(mnl_socket_get_fd(events_.get()), EPOLLIN,
                           [this](std::uint32_t /*events*/) { return receive_events(); });
}

Result<void> Socket::attach(Reactor& reactor) {
    reactor_ = &reactor;
    if (auto watched = watch_requests(); !watched)
        return watched;
    return events_ ? watch_events() : Result<void>{};
}

Result<void> Socket::wait() {
    std::array<pollfd, 2> ready{{{mnl_socket_get_fd(requests_.get()), POLLIN, 0},
                                 {events_ ? mnl_socket_get_fd(events_.get()) : -1, POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), -1) < 0)
        return errno == EINTR ? Result<void>{} : system_error("poll");
    if (ready[0].revents != 0) {
        if (auto received = receive_answers(); !received)
            return received;
    }
    return ready[1].revents != 0 ? receive_events() : Result<void>{};
}

}  // namespace mercury::netlink
