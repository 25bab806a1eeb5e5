// SPDX-License-Identifier: MIT
#include "hints/message_socket.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include "hints/protocol.hpp"

namespace mercury::hints {
namespace {

// The kernel's limit. With room for fewer it would close the others itself, and to close a socket
// that lingers takes as long as its owner wants: see daemon/lanes.hpp.
constexpr std::size_t descriptors_max = 253;  // SCM_MAX_FD

void take_descriptors(const msghdr& message, std::vector<Fd>& descriptors) {
    for (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(part))) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
            descriptors.emplace_back(fd);
        }
    }
}

/// What errno says.
Transfer failed() {
    switch (errno) {
        case EAGAIN:
        case ENOBUFS:
        case ETOOMANYREFS:
            return Transfer::WouldBlock;
        case EPIPE:
        case ECONNRESET:
        case ENOTCONN:
            return Transfer::Closed;
        default:
            return Transfer::Refused;
    }
}

}  // namespace

Result<UnixAddress> unix_address(std::string_view path) {
    UnixAddress made;
    made.address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(made.address.sun_path)) {
        return Error{fmt::format("the path of a socket has 1 to {} bytes, not {}",
                                 sizeof(made.address.sun_path) - 1, path.size())};
    }
    std::memcpy(made.address.sun_path, path.data(), path.size());
    made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
    return made;
}

Transfer receive(const Fd& socket, Packet& packet) {
    packet.descriptors_.clear();
    iovec part{packet.buffer_.data(), packet.buffer_.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(descriptors_max * sizeof(int))> control;
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t got = 0;
    do {
        got = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        // A reset is said once, and before what the peer sent until then.
    } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    if (got < 0)
        return failed();
    take_descriptors(message, packet.descriptors_);
    packet.size_ = static_cast<std::size_t>(got);
    packet.truncated_ = (message.msg_flags & MSG_TRUNC) != 0;
    packet.descriptors_lost_ = (message.msg_flags & MSG_CTRUNC) != 0;
    // An empty packet looks like the end of the connection, and nobody needs one.
    return got == 0 && packet.descriptors_.empty() ? Transfer::Closed : Transfer::Done;
}

Transfer send(const Fd& socket, std::string_view bytes, int descriptor) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? failed() : Transfer::Done;
}

}  // namespace mercury::hints
