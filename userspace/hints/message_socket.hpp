// SPDX-License-Identifier: MIT
//
// Packets of a UNIX seqpacket socket with descriptors: how the messages of protocol.hpp travel.
// Nothing here waits, and nothing raises SIGPIPE.
#pragma once

#include <string_view>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>

#include "common/fd.hpp"
#include "common/result.hpp"
#include "hints/protocol.hpp"

namespace mercury::hints {

struct UnixAddress {
    sockaddr_un address{};
    socklen_t size = 0;

    const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address); }
};

/// Of a path; an error if it is too long.
Result<UnixAddress> unix_address(std::string_view path);

/// WouldBlock is also said where the kernel wants fewer descriptors underway; Closed if the peer
/// has hung up; Refused, with errno, if the kernel would not send this.
enum class Transfer : std::uint8_t { Done, WouldBlock, Closed, Refused };

/// What was received last; to be used again, as its memory is not small.
class Packet {
  public:
    Packet() : buffer_(message_bytes_max) {}

    std::string_view bytes() const { return {buffer_.data(), size_}; }
    /// To be taken from here.
    std::vector<Fd>& descriptors() { return descriptors_; }
    /// There was more than message_bytes_max.
    bool truncated() const { return truncated_; }
    /// This process had no room for some of them.
    bool descriptors_lost() const { return descriptors_lost_; }

  private:
    friend Transfer receive(const Fd& socket, Packet& packet);

    std::vector<char> buffer_;
    std::size_t size_ = 0;
    std::vector<Fd> descriptors_;
    bool truncated_ = false;
    bool descriptors_lost_ = false;
};

Transfer receive(const Fd& socket, Packet& packet);

/// DESCRIPTOR travels with BYTES unless it is below 0.
Transfer send(const Fd& socket, std::string_view bytes, int descriptor = -1);

}  // namespace mercury::hints
