// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "common/fd.hpp"
#include "common/result.hpp"

namespace mercury::transport {

/// Where a socket is or connects to: IPv4 or IPv6.
class Address {
  public:
    /// Each port of "HOST:PORT" or "HOST:FIRST-LAST"; an IPv6 address stands in brackets. Names
    /// are resolved.
    static Result<std::vector<Address>> parse(std::string_view text);

    static Result<Address> of_socket(const Fd& socket);
    static Result<Address> of_peer(const Fd& socket);

    const sockaddr* get() const;
    socklen_t size() const { return size_; }
    int family() const { return storage_.ss_family; }
    bool is_loopback() const;
    /// The same host, whatever the port.
    bool has_host_of(const Address& other) const;
    std::string to_string() const;  // as parse() reads it

  private:
    Address() = default;
    using Getter = int (*)(int, sockaddr*, socklen_t*);
    static Result<Address> ask(const Fd& socket, Getter getter, const char* what);

    sockaddr_storage storage_{};
    socklen_t size_ = 0;
};

}  // namespace mercury::transport
