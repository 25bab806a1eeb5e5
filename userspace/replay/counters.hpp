// SPDX-License-Identifier: MIT
//
// What the kernel counts in a network namespace.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/fd.hpp"
#include "common/reactor.hpp"
#include "common/result.hpp"
#include "replay/network.hpp"

namespace mercury::replay {

struct TcpCounters {
    std::uint64_t retransmits = 0;  // segments
    std::uint64_t timeouts = 0;     // retransmission timers that fired
};

/// Of all sockets that were ever in PLACE.
Result<TcpCounters> tcp_counters(const Namespace& place);

/// The value of NAME in GROUP of /proc/net/snmp or /proc/net/netstat, where a line of names is
/// followed by a line of values.
Result<std::uint64_t> proc_net_value(std::string_view text, std::string_view group,
                                     std::string_view name);

/// Bytes that a host's link has carried, as frames.
struct LinkBytes {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
};

/// Of the host's link, in the text of /proc/net/dev.
Result<LinkBytes> parse_link_bytes(std::string_view text);

/// Reads the counters of one host's link again and again.
class LinkMeter {
  public:
    static Result<LinkMeter> open(const Namespace& host);

    Result<LinkBytes> read() const;

  private:
    explicit LinkMeter(Fd file) : file_(std::move(file)) {}

    Fd file_;
};

}  // namespace mercury::replay
