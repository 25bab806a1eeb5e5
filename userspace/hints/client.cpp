// SPDX-License-Identifier: MIT
#include "hints/client.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "hints/mercury.h"
#include "hints/sockets.hpp"
#include "layers/plan.hpp"

namespace mercury::hints {
namespace {

using std::chrono::milliseconds;

// A daemon that restarts is back in well under a second; one that is not there costs a program a
// system call every ten.
constexpr milliseconds backoff_min{100};
constexpr milliseconds backoff_max{10'000};

template <typename T>
constexpr std::size_t index_in_request = Request(T{}).index();

std::vector<JobClass> classes_of(const std::vector<PlannedClass>& plan) {
    std::vector<JobClass> classes;
    for (const PlannedClass& planned : plan) {
        const auto priority = static_cast<unsigned>(priority_of_class(classes.size(), plan.size()));
        classes.push_back({planned.layers.first, planned.layers.last, 0, priority, {}});
    }
    return classes;
}

/// Each layer of 0 to LAYERS - 1 is in one class, in order.
bool cover(const std::vector<JobClass>& classes, std::size_t layers) {
    std::size_t next = 0;
    for (const JobClass& one : classes) {
        if (one.first != next)
            return false;
        next = one.last + 1;
    }
    return next == layers;
}

Result<void> check_layers(const std::vector<Layer>& layers) {
    if (layers.empty() || layers.size() > layers_max)
        return Error{fmt::format("a job has 1 to {} layers, not {}", layers_max, layers.size())};
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const Layer& layer = layers[i];
        if (auto named = check_name(fmt::format("the name of layer {}", i), layer.name); !named)
            return named;
        if (layer.bytes < 1 || layer.bytes > layer_bytes_max) {
            return Error{fmt::format("layer {} must have 1 to {} bytes, not {}", i, layer_bytes_max,
                                     layer.bytes)};
        }
        for (const auto time : {layer.forward, layer.backward}) {
            if (time < time.zero() || time > layer_time_max)
                return Error{fmt::format("the times of layer {} must be at most one hour", i)};
        }
    }
    return {};
}

}  // namespace

std::string socket_path() {
    const char* const named = std::getenv("MERCURY_SOCKET");
    return named == nullptr ? default_socket : named;
}

Client::Client(std::string path) : path_(std::move(path)), process_(getpid()) {}

Client::~Client() {
    // In a child after fork() the connection is the parent's.
    if (socket_ && !forked())
        send(socket_, encode(Request(Bye{})));
}

bool Client::forked() const {
    return getpid() != process_;
}

Outcome Client::fail(Outcome outcome, std::string message) {
    error_ = std::move(message);
    return outcome;
}

std::optional<std::size_t> Client::class_of(std::size_t layer) const {
    const auto found =
        std::ranges::find_if(classes_, [layer](const JobClass& one) { return layer <= one.last; });
    if (found == classes_.end())
        return std::nullopt;
    return static_cast<std::size_t>(found - classes_.begin());
}

std::size_t Client::marked() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        sockets_, [](const auto& entry) { return entry.second.mark.has_value(); }));
}

// Calls ----------------------------------------------------------------------------------------

Outcome Client::declare(DeclareJob job) {
    if (auto named = check_name("the name of the job", job.name); !named)
        return fail(Outcome::Argument, named.error().message);
    if (auto checked = check_layers(job.layers); !checked)
        return fail(Outcome::Argument, checked.error().message);
    const auto plan = plan_layers({job.name, "", job.layers}, job.classes, 0);
    if (!plan)
        return fail(Outcome::Argument, plan.error().message);

    const std::size_t layers = job.layers.size();
    classes_ = classes_of(plan.value());
    job_ = std::move(job);
    job_->number = number_;
    std::erase_if(sockets_, [&](const auto& entry) { return entry.second.layer >= layers; });
    declared_ = false;
    told_ = false;
    if (!socket_)
        next_try_ = {};
    connect_if_due();
    await([this] { return declared_; });
    if (declared_)
        return Outcome::Done;
    return socket_ ? Outcome::Pending : Outcome::Fallback;
}

Outcome Client::assign(int fd, std::size_t layer, std::uint32_t lowat) {
    if (!job_)
        return fail(Outcome::Order, "no job has been declared");
    const auto index = class_of(layer);
    if (!index) {
        return fail(Outcome::Argument, fmt::format("the job has {} layers, and none of number {}",
                                                   job_->layers.size(), layer));
    }
    if (lowat > lowat_max)
        return fail(Outcome::Argument, fmt::format("lowat must be at most {}", lowat_max));
    const auto facts = inspect_socket(fd);
    if (!facts)
        return fail(Outcome::Socket, facts.error().message);
    const int priority = static_cast<int>(classes_[*index].priority);
    if (facts.value().priority != priority && !facts.value().idle)
        return fail(Outcome::Busy, "the socket has data underway, which would be reordered");
    if (lowat != 0) {
        if (auto set = set_lowat(fd, facts.value(), lowat); !set)
            return fail(Outcome::Socket, set.error().message);
    }
    if (auto set = set_priority(fd, priority); !set)
        return fail(Outcome::Socket, set.error().message);

    sockets_[fd] = {facts.value().cookie, layer, {}};
    connect_if_due();
    return ask_to_mark(fd, facts.value().cookie);
}

Outcome Client::ask_to_mark(int fd, std::uint64_t cookie) {
    awaited_.reset();
    awaited_cookie_ = cookie;
    to_send_.push_back(fd);
    send_again();
    await([this] { return awaited_.has_value(); });
    awaited_cookie_ = 0;
    if (!awaited_)
        return socket_ ? Outcome::Pending : Outcome::Fallback;
    if (const auto* const failure = std::get_if<Failure>(&*awaited_)) {
        const bool busy = failure->code == Code::Busy;
        sockets_.erase(fd);
        return fail(busy ? Outcome::Busy : Outcome::Refused, failure->message);
    }
    return Outcome::Done;
}

Outcome Client::step() {
    if (!job_)
        return fail(Outcome::Order, "no job has been declared");
    take_up_idle();
    connect_if_due();
    receive_answers();
    send_again();
    if (!declared_)
        return socket_ ? Outcome::Pending : Outcome::Fallback;
    // One that the daemon has no room for is lost, as if the iteration had been longer.
    ask(Step{});
    return socket_ ? Outcome::Done : Outcome::Fallback;
}

Outcome Client::dispatch(milliseconds patience) {
    if (!job_)
        return fail(Outcome::Order, "no job has been declared");
    take_up_idle();
    connect_if_due();
    pump(patience, [this] { return asked_.empty() && to_send_.empty(); });
    if (!socket_)
        return Outcome::Fallback;
    return asked_.empty() && to_send_.empty() ? Outcome::Done : Outcome::Pending;
}

template <typename Condition>
void Client::await(const Condition& condition) {
    pump(slow_ ? milliseconds{0} : timeout_, condition);
    slow_ = socket_ && !condition();
}

template <typename Condition>
void Client::pump(milliseconds patience, const Condition& condition) {
    const auto end = Clock::now() + patience;
    for (;;) {
        receive_answers();
        send_again();
        if (!socket_ || condition())
            return;
        const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
        if (left.count() <= 0)
            return;
        const short events = wants_to_send() ? POLLIN | POLLOUT : POLLIN;
        pollfd waiting{socket_.get(), events, 0};
        poll(&waiting, 1, static_cast<int>(std::min<std::int64_t>(left.count(), INT32_MAX)));
    }
}

// The connection -------------------------------------------------------------------------------

void Client::connect_if_due() {
    if (socket_ || !job_ || Clock::now() < next_try_)
        return;
    if (const auto made = connect(); !made)
        disconnect(made.error().message);
}

Result<void> Client::connect() {
    const auto address = unix_address(path_);
    if (!address)
        return address.error();
    Fd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made)
        return system_error("socket");
    if (::connect(made.get(), address.value().generic(), address.value().size) != 0)
        return system_error(fmt::format("no daemon at {}", path_));
    socket_ = std::move(made);
    why_ = "the daemon has not answered yet";
    job_->number = number_;
    told_ = false;
    ask(Hello{versions.back(), fmt::format("libmercury {}", MERCURY_VERSION)});
    return {};
}

void Client::disconnect(std::string why) {
    why_ = std::move(why);
    socket_ = Fd();
    asked_.clear();
    busy_.clear();
    blocked_ = declared_ = slow_ = false;
    backoff_ = std::clamp(backoff_ * 2, backoff_min, backoff_max);
    next_try_ = Clock::now() + backoff_;
}

/// Whether it was sent.
bool Client::ask(const Request& request, int fd, std::uint64_t cookie) {
    if (!socket_)
        return false;
    switch (send(socket_, encode(request), fd)) {
        case Transfer::Done:
            blocked_ = false;
            asked_.push_back({request.index(), fd, cookie});
            return true;
        case Transfer::WouldBlock:
            blocked_ = true;
            return false;
        case Transfer::Closed:
            receive_answers();  // it may have said why
            return false;
        case Transfer::Refused:
            disconnect(system_error("the daemon cannot be told").message);
            return false;
    }
    return false;
}

void Client::receive_answers() {
    while (socket_) {
        const Transfer transfer = receive(socket_, packet_);
        if (transfer == Transfer::WouldBlock)
            return;
        if (transfer != Transfer::Done)
            return disconnect("the daemon has hung up");
        const auto answer = decode_answer(packet_.bytes());
        if (!answer || asked_.empty()) {
            return disconnect(
                fmt::format("the daemon does not keep to the protocol: {}",
                            answer ? "an answer to nothing" : answer.error().message));
        }
        slow_ = false;
        const Asked asked = asked_.front();
        asked_.pop_front();
        answered(asked, answer.value());
    }
}

void Client::answered(const Asked& asked, const Answer& answer) {
    if (asked.request == index_in_request<Assign>)
        return assigned(asked, answer);
    if (const auto* const failure = std::get_if<Failure>(&answer)) {
        if (asked.request != index_in_request<Step>)  // a job that it does not know
            disconnect(fmt::format("the daemon refuses: {}", failure->message));
        return;
    }
    if (answer.index() != asked.request)
        return disconnect("the daemon does not keep to the protocol: it answers something else");
    if (const auto* const job = std::get_if<JobDeclared>(&answer)) {
        if (const auto adopted = adopt(*job); !adopted)
            disconnect(adopted.error().message);
    }
}

void Client::assigned(const Asked& asked, const Answer& answer) {
    if (asked.cookie == awaited_cookie_)
        awaited_ = answer;
    const auto found = sockets_.find(asked.fd);
    if (found == sockets_.end() || found->second.cookie != asked.cookie)
        return;  // closed meanwhile, and another has its descriptor
    if (const auto* const done = std::get_if<Assigned>(&answer))
        found->second.mark = done->mark;
    else if (const auto* const failure = std::get_if<Failure>(&answer);
             failure != nullptr && failure->code == Code::Busy)
        busy_.push_back(asked.fd);
}

Result<void> Client::adopt(const JobDeclared& job) {
    // A later declaration is underway, to which the answer counts.
    const bool superseded = std::ranges::any_of(
        asked_, [](const Asked& other) { return other.request == index_in_request<DeclareJob>; });
    if (superseded)
        return {};
    if (!cover(job.classes, job_->layers.size()))
        return Error{"the daemon does not keep to the protocol: its classes are not the layers"};
    classes_ = job.classes;
    number_ = job.number;
    has_option_ = job.setsockopt;
    declared_ = true;
    why_.clear();
    backoff_ = milliseconds{0};
    adopt_marks();
    return {};
}

/// Sockets that have the mark that they should have are left in peace: they may be busy.
void Client::adopt_marks() {
    to_send_.clear();
    busy_.clear();
    for (auto& [fd, socket] : sockets_) {
        if (socket.mark != classes_[*class_of(socket.layer)].mark) {
            socket.mark.reset();
            to_send_.push_back(fd);
        }
    }
}

void Client::take_up_idle() {
    std::erase_if(busy_, [this](int fd) {
        const auto facts = inspect_socket(fd);
        const bool is_busy = facts && !facts.value().idle;
        if (!is_busy)
            to_send_.push_back(fd);
        return !is_busy;
    });
}

std::optional<Client::Socket> Client::remembered(int fd) const {
    const auto found = sockets_.find(fd);
    if (found == sockets_.end())
        return std::nullopt;
    const auto facts = inspect_socket(fd);
    if (!facts || facts.value().cookie != found->second.cookie)
        return std::nullopt;
    return found->second;
}

/// Without a round trip, if the kernel can; false: the daemon is to be asked.
bool Client::mark_by_option(int fd, const Socket& socket) {
    if (!has_option_)
        return false;
    const mercury_socket_layer which{*number_, static_cast<std::uint32_t>(socket.layer)};
    const Asked asked{index_in_request<Assign>, fd, socket.cookie};
    if (setsockopt(fd, MERCURY_SOL, MERCURY_SO_LAYER, &which, sizeof(which)) == 0) {
        // The layers are those of the member that has declared some last.
        const std::size_t index = *class_of(socket.layer);
        const auto facts = inspect_socket(fd);
        if (!facts || facts.value().mark != classes_[index].mark)
            return false;
        assigned(asked, Assigned{index, classes_[index].mark});
        return true;
    }
    if (errno != EBUSY)  // the option has gone with the daemon, say
        return false;
    assigned(asked, Failure{Code::Busy, "the socket has data underway", "assign", {}});
    return true;
}

void Client::send_again() {
    if (socket_ && !told_)
        told_ = ask(*job_);
    while (declared_ && !to_send_.empty()) {
        const int fd = to_send_.front();
        const auto socket = remembered(fd);
        if (!socket) {
            sockets_.erase(fd);
        } else if (!mark_by_option(fd, *socket) &&
                   !ask(Assign{socket->layer, {}}, fd, socket->cookie)) {
            return;
        }
        to_send_.pop_front();
    }
}

}  // namespace mercury::hints
