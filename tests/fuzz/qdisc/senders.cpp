// SPDX-License-Identifier: MIT
#include "senders.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fuzz {
namespace {

using namespace std::chrono_literals;

constexpr unsigned datagram_threads = 2;
constexpr std::uint16_t stream_port = 5001;
constexpr std::size_t largest_datagram = 60000;
constexpr auto breath = 3ms;

/// A descriptor of its own; any of them may be -1, when a device is gone.
class Socket {
  public:
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Socket() {
        if (fd_ >= 0) {
            close(fd_);
        }
    }
    int fd() const { return fd_; }
    template <typename T>
    void set(int level, int name, const T& value) const {
        setsockopt(fd_, level, name, &value, sizeof value);
    }

  private:
    int fd_;
};

/// Layers and jobs of all sorts: none, the first, the last, beyond the last.
std::uint32_t random_mark(Random& random) {
    constexpr std::uint32_t layers[] = {0, 0, 0, 1, 1, 2, 5, 40, 63, 64, 65, 500, 1024, 0xffff};
    constexpr std::uint32_t jobs[] = {0, 0, 0, 1, 2, 15, 16, 61, 255};
    return random.pick(jobs) << 16 | random.pick(layers);
}

/// Priorities of applications, and classids of mercury's classes.
int random_priority(Random& random) {
    constexpr int priorities[] = {0,       0,       0,       6,       7,      0x10001,
                                  0x10401, 0x1fc00, 0x1fc05, 0x1ffff, 0x1fbff};
    return random.pick(priorities);
}

void use_deadlines(const Socket& socket, Random& random) {
    constexpr clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_TAI, CLOCK_REALTIME, CLOCK_BOOTTIME};
    socket.set(SOL_SOCKET, SO_TXTIME,
               sock_txtime{.clockid = random.pick(clocks), .flags = SOF_TXTIME_DEADLINE_MODE});
}

Socket datagram_v4(const char* address) {
    Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {}, .sin_zero = {}};
    inet_pton(AF_INET, address, &to.sin_addr);
    connect(socket.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    return socket;
}

Socket datagram_v6(const char* address) {
    Socket socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(9);
    inet_pton(AF_INET6, address, &to.sin6_addr);
    connect(socket.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    return socket;
}

/// Frames of no protocol that anybody knows, from 14 bytes on.
Socket raw_frames() {
    Socket socket(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(0x88b5);
    to.sll_ifindex = static_cast<int>(if_nametoindex(device));
    to.sll_halen = 6;
    bind(socket.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    return socket;
}

Socket random_datagram(Random& random) {
    switch (random.below(8)) {
        case 0:
            return datagram_v6("fd00::9");
        case 1:
            return datagram_v4("10.0.5.9");  // through the VLAN
        case 2:
            return raw_frames();
        default:
            return datagram_v4("10.0.0.9");
    }
}

/// Sends one datagram, with a time of its own if the socket knows such; an error is the device's.
bool send_one(const Socket& socket, std::span<const std::byte> data, std::int64_t due) {
    iovec piece{const_cast<std::byte*>(data.data()), data.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof due)> control{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (due) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_TXTIME;
        header->cmsg_len = CMSG_LEN(sizeof due);
        std::memcpy(CMSG_DATA(header), &due, sizeof due);
    }
    return sendmsg(socket.fd(), &message, MSG_DONTWAIT) >= 0;
}

sockaddr_in stream_address(const char* address) {
    sockaddr_in found{
        .sin_family = AF_INET, .sin_port = htons(stream_port), .sin_addr = {}, .sin_zero = {}};
    inet_pton(AF_INET, address, &found.sin_addr);
    return found;
}

/// Senders take what the administrator leaves: there may be one processor for all.
void give_way() {
    if (nice(10) < 0) {
        std::perror("nice");
    }
}

/// What is still queued for a connection does not keep its namespace.
void reset_on_close(const Socket& socket) {
    socket.set(SOL_SOCKET, SO_LINGER, linger{.l_onoff = 1, .l_linger = 0});
}

}  // namespace

Senders::Senders(const World& world, Random& random) : world_(world) {
    threads_.emplace_back([this] { receive_streams(); });
    pausable_ = datagram_threads + 1;
    for (unsigned i = 0; i < datagram_threads; ++i) {
        threads_.emplace_back([this, seed = random.below(UINT64_MAX)] { send_datagrams(seed); });
    }
    threads_.emplace_back([this, seed = random.below(UINT64_MAX)] { send_streams(seed); });
}

bool Senders::may_go_on() {
    if (pausing_) {
        ++waiting_;
        pausing_.wait(true);
        --waiting_;
    }
    return !stopping_;
}

void Senders::pause() {
    pausing_ = true;
    while (waiting_ < pausable_) {
        std::this_thread::sleep_for(1ms);
    }
}

void Senders::resume() {
    pausing_ = false;
    pausing_.notify_all();
    while (waiting_) {
        std::this_thread::sleep_for(1ms);
    }
}

void Senders::stop() {
    stopping_ = true;
    resume();
    threads_.clear();
}

void Senders::send_datagrams(std::uint64_t seed) {
    Random random(seed);
    give_way();
    world_.sender().enter();
    std::vector<std::byte> data(largest_datagram);
    std::vector<Socket> sockets;
    for (int i = 0; i < 12; ++i) {
        sockets.push_back(random_datagram(random));
        if (random.chance(30)) {
            use_deadlines(sockets.back(), random);
        }
    }
    while (may_go_on()) {
        const Socket& socket = random.pick(std::span<const Socket>(sockets));
        socket.set(SOL_SOCKET, SO_MARK, random_mark(random));
        socket.set(SOL_SOCKET, SO_PRIORITY, random_priority(random));
        const bool large = random.chance(15);
        socket.set(SOL_UDP, UDP_SEGMENT, large ? static_cast<int>(random.between(400, 1400)) : 0);
        const auto due =
            random.chance(30) ? static_cast<std::int64_t>(random.below(1ull << 40)) : 0;
        for (auto count = random.below(30); count--;) {
            const std::size_t size = random.between(1, large ? 16000 : 1400);
            sent_ += send_one(socket, std::span(data).first(size), due);
        }
        std::this_thread::sleep_for(breath);
    }
}

void Senders::send_streams(std::uint64_t seed) {
    Random random(seed);
    give_way();
    world_.sender().enter();
    const std::vector<std::byte> data(largest_datagram);
    std::vector<Socket> sockets;
    while (may_go_on()) {
        if (sockets.size() < 4 || random.chance(1)) {
            Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            reset_on_close(socket);
            socket.set(SOL_SOCKET, SO_MARK, random_mark(random));
            const sockaddr_in to = stream_address("10.0.0.2");
            connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
            if (sockets.size() < 4) {
                sockets.push_back(std::move(socket));
            } else {
                sockets[random.below(4)] = std::move(socket);
            }
        }
        const Socket& socket = random.pick(std::span<const Socket>(sockets));
        sent_ += send(socket.fd(), data.data(), random.between(1, data.size()),
                      MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
        recv(socket.fd(), nullptr, largest_datagram, MSG_DONTWAIT | MSG_TRUNC);
        std::this_thread::sleep_for(breath);
    }
}

/// Takes connections and what they send, and answers a little, which the senders acknowledge.
void Senders::receive_streams() {
    give_way();
    world_.receiver().enter();
    Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    listener.set(SOL_SOCKET, SO_REUSEADDR, 1);
    const sockaddr_in own = stream_address("10.0.0.2");
    bind(listener.fd(), reinterpret_cast<const sockaddr*>(&own), sizeof own);
    listen(listener.fd(), 16);
    std::vector<Socket> sockets;
    std::vector<pollfd> polled;
    std::vector<char> data(largest_datagram);
    while (!stopping_) {
        polled.assign(1, pollfd{listener.fd(), POLLIN, 0});
        for (const Socket& socket : sockets) {
            polled.push_back({socket.fd(), POLLIN, 0});
        }
        poll(polled.data(), polled.size(), 20);
        for (std::size_t i = polled.size() - 1; i > 0; --i) {
            const ssize_t size =
                polled[i].revents ? recv(polled[i].fd, data.data(), data.size(), MSG_DONTWAIT) : 1;
            if (size == 0 || (size < 0 && errno != EAGAIN)) {
                sockets.erase(sockets.begin() + static_cast<std::ptrdiff_t>(i - 1));
            } else if (polled[i].revents) {
                send(polled[i].fd, data.data(), 500, MSG_DONTWAIT | MSG_NOSIGNAL);
            }
        }
        if (polled[0].revents) {
            sockets.emplace_back(
                accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            reset_on_close(sockets.back());
        }
    }
}

}  // namespace fuzz
