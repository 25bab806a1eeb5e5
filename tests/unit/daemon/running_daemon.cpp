// SPDX-License-Identifier: MIT
#include "running_daemon.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <iterator>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "hints/message_socket.hpp"

namespace mercury::daemon {
namespace {

using namespace hints;

// For what takes microseconds; a machine may be busy.
constexpr int patience_ms = 20'000;

std::string fresh_path() {
    static std::atomic<int> count{0};
    return (std::filesystem::temp_directory_path() /
            fmt::format("mercury-test-{}-{}.sock", getpid(), count++))
        .string();
}

bool wait_for(int fd, short events) {
    pollfd waiting{fd, events, 0};
    return poll(&waiting, 1, patience_ms) == 1;
}

}  // namespace

struct RunningDaemon::Instance {
    Reactor reactor;
    netlink::FakeKernel kernel;
    Inbox inbox;
    std::unique_ptr<Daemon> daemon;
    std::thread thread;
};

RunningDaemon::RunningDaemon(Settings settings)
    : settings_(std::move(settings)), path_(fresh_path()) {
    start();
}

RunningDaemon::~RunningDaemon() {
    stop();
    unlink(path_.c_str());
}

void RunningDaemon::start() {
    instance_ = std::make_unique<Instance>();
    auto listener = listen_at(path_);
    INFO((listener ? "" : listener.error().message));
    REQUIRE(listener);
    Instance& made = *instance_;
    made.daemon =
        std::make_unique<Daemon>(settings_, std::move(listener).value(), made.reactor, made.kernel);
    REQUIRE(made.inbox.attach(made.reactor));
    REQUIRE(made.daemon->start());
    made.thread = std::thread([&made] {
        if (!made.reactor.run())
            std::abort();
        made.daemon.reset();
    });
}

void RunningDaemon::stop() {
    if (!instance_)
        return;
    instance_->inbox.post([this] { instance_->reactor.stop(); });
    instance_->thread.join();
    instance_.reset();
}

void RunningDaemon::restart() {
    stop();
    start();
}

void RunningDaemon::in_thread(const std::function<void(Daemon&, netlink::FakeKernel&)>& work) {
    std::promise<void> done;
    instance_->inbox.post([&] {
        work(*instance_->daemon, instance_->kernel);
        done.set_value();
    });
    done.get_future().get();
}

Status RunningDaemon::status() {
    Status status;
    in_thread([&](Daemon& daemon, netlink::FakeKernel& /*kernel*/) { status = daemon.status(0); });
    return status;
}

Wire::Wire(const RunningDaemon& daemon)
    : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const auto address = unix_address(daemon.path());
    REQUIRE(address);
    REQUIRE(connect(socket_.get(), address.value().generic(), address.value().size) == 0);
    const int room = 4 << 20;  // for messages that are too long
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
}

bool Wire::send(std::string_view bytes, std::initializer_list<int> descriptors) {
    return send_many(bytes, descriptors);
}

bool Wire::send_many(std::string_view bytes, const std::vector<int>& descriptors) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    std::vector<std::byte> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
        std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    return wait_for(socket_.get(), POLLOUT) &&
           sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

std::string Wire::receive() {
    REQUIRE(wait_for(socket_.get(), POLLIN));
    // Kept: to make it anew for each message takes long under sanitizers.
    static std::vector<char> buffer(message_bytes_max);
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    return {buffer.data(), got < 0 ? 0 : static_cast<std::size_t>(got)};
}

Answer Wire::answer() {
    const std::string bytes = receive();
    const auto answer = decode_answer(bytes);
    INFO(bytes);
    REQUIRE(answer);
    return answer.value();
}

Answer Wire::ask(std::string_view bytes, std::initializer_list<int> descriptors) {
    REQUIRE(send(bytes, descriptors));
    return answer();
}

Answer Wire::ask(const Request& request, std::initializer_list<int> descriptors) {
    return ask(encode(request), descriptors);
}

JobDeclared Wire::declare(const std::string& name) {
    REQUIRE(std::holds_alternative<Welcome>(ask(Hello{1, "test"})));
    const auto declared = ask(four_layers(name));
    if (const auto* const failure = std::get_if<Failure>(&declared))
        FAIL(failure->message);
    return std::get<JobDeclared>(declared);
}

Code code_of(const Answer& answer) {
    const auto* const failure = std::get_if<Failure>(&answer);
    REQUIRE(failure != nullptr);
    return failure->code;
}

DeclareJob four_layers(const std::string& name) {
    using std::chrono::milliseconds;
    DeclareJob job{name, {}, 2, {}};
    for (const char* const layer : {"a", "b", "c", "d"})
        job.layers.push_back({layer, milliseconds(1), milliseconds(2), 100});
    return job;
}

Fd tcp_socket() {
    return Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

std::pair<Fd, Fd> tcp_pair() {
    const Fd listener = tcp_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener.get(), generic, size) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    REQUIRE(getsockname(listener.get(), generic, &size) == 0);
    Fd client = tcp_socket();
    REQUIRE(connect(client.get(), generic, size) == 0);
    return {std::move(client), Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

std::uint32_t mark_of(const Fd& socket) {
    std::uint32_t mark = 0;
    socklen_t size = sizeof(mark);
    REQUIRE(getsockopt(socket.get(), SOL_SOCKET, SO_MARK, &mark, &size) == 0);
    return mark;
}

int priority_of(const Fd& socket) {
    int priority = 0;
    socklen_t size = sizeof(priority);
    REQUIRE(getsockopt(socket.get(), SOL_SOCKET, SO_PRIORITY, &priority, &size) == 0);
    return priority;
}

bool can_mark() {
    const int mark = 1;
    if (setsockopt(tcp_socket().get(), SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) == 0)
        return true;
    WARN("NOT TESTED: marks, which need CAP_NET_ADMIN");
    return false;
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

bool comes_true(const std::function<bool()>& condition) {
    const auto end = Clock::now() + std::chrono::milliseconds(patience_ms);
    while (!condition()) {
        if (Clock::now() > end)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

void eventually(const std::function<bool()>& condition) {
    REQUIRE(comes_true(condition));
}

}  // namespace mercury::daemon
