// SPDX-License-Identifier: MIT
//
// Rtnetlink as it is on the wire: messages that may be nonsense, and what the kernel says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libmnl/libmnl.h>

namespace fuzz {

/// A request about a qdisc, class, filter or link, built attribute by attribute.
class Message {
  public:
    Message(std::uint16_t type, std::uint16_t flags);

    /// The header that requests about traffic control have.
    Message& traffic(int ifindex, std::uint32_t handle, std::uint32_t parent,
                     std::uint32_t info = 0);
    Message& link(int ifindex, bool up);

    Message& put(std::uint16_t type, std::span<const std::byte> data);
    Message& put(std::uint16_t type, const std::string& text);
    /// The lowest bytes of a number: more or fewer than it should have, if it is to be wrong.
    Message& number(std::uint16_t type, std::size_t size, std::uint64_t value);
    Message& begin(std::uint16_t type);
    Message& end();

    /// What is behind the header, to be corrupted.
    std::span<std::byte> attributes();
    nlmsghdr* header() { return header_; }

  private:
    std::vector<char> buffer_;
    nlmsghdr* header_;
    std::size_t fixed_ = 0;
    std::vector<nlattr*> open_;
};

/// A qdisc or a class of a dump. Memory and the number of active jobs are mercury's own.
struct Entry {
    std::uint32_t handle = 0;
    std::uint32_t parent = 0;
    std::string kind{};
    std::uint64_t bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t qlen = 0;
    std::uint64_t backlog = 0;
    std::uint64_t drops = 0;
    std::optional<std::uint64_t> memory{};
    std::optional<std::uint32_t> active_jobs{};

    bool operator==(const Entry&) const = default;
};

/// A socket in the namespace that its thread is in.
class Route {
  public:
    Route();

    /// The kernel's answer: 0 or an errno.
    int request(Message& message);
    std::vector<Entry> qdiscs(int ifindex);
    std::vector<Entry> classes(int ifindex, std::uint32_t qdisc);

  private:
    struct Closer {
        void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
    };

    template <typename Handler>
    int exchange(nlmsghdr* header, Handler handler);
    std::vector<Entry> dump(std::uint16_t type, int ifindex, std::uint32_t parent);

    std::unique_ptr<mnl_socket, Closer> socket_;
    unsigned port_;
    std::uint32_t sequence_ = 0;
};

}  // namespace fuzz
