// SPDX-License-Identifier: MIT
#include "replay/upload.hpp"

#include <utility>
#include <vector>

#include <sys/socket.h>

namespace mercury::replay {
namespace {

/// Large, for few system calls: these are what a guest spends its real time on.
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

}  // namespace

Upload::Upload(Fd from, Fd to)
    : from_(std::move(from)),
      to_(std::move(to)),
      sender_([this] { send_all(); }),
      receiver_([this] { receive_all(); }) {}

Upload::~Upload() {
    // Both threads are woken, and find the connection closed.
    shutdown(from_.get(), SHUT_RDWR);
    shutdown(to_.get(), SHUT_RDWR);
    sender_.join();
    receiver_.join();
}

double Upload::goodput() const {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
    return time.count() > 0 ? static_cast<double>(received_) * 8 / time.count() : 0;
}

void Upload::send_all() const {
    const std::vector<char> zeros(chunk_bytes);
    while (send(from_.get(), zeros.data(), zeros.size(), MSG_NOSIGNAL) > 0) {
    }
}

void Upload::receive_all() {
    // MSG_TRUNC: TCP throws the bytes away instead of copying them.
    for (ssize_t got = 0; (got = recv(to_.get(), nullptr, chunk_bytes, MSG_TRUNC)) > 0;)
        received_ += static_cast<std::uint64_t>(got);
}

}  // namespace mercury::replay
