// SPDX-License-Identifier: MIT
//
// What a socket gets, by whatever way it is found.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "common/result.hpp"
#include "hints/protocol.hpp"

namespace mercury {

/// What a socket is to get.
struct Marking {
    std::uint32_t mark = 0;
    int priority = 0;
    std::optional<std::uint8_t> dscp;
    std::optional<std::uint32_t> lowat;  // TCP_NOTSENT_LOWAT, bytes
    bool also_busy = false;              // although what is underway will be reordered

    friend bool operator==(const Marking&, const Marking&) = default;
};

struct Marked {
    std::uint64_t cookie = 0;  // of the socket
};

/// "AF41", "CS5", "EF", or 0 to 63.
Result<std::uint8_t> parse_dscp(std::string_view text);

/// FD may be anything. A socket that has the mark already may be busy: nothing changes for it.
/// After a failure it is as it was.
std::variant<Marked, hints::Failure> mark_socket(int fd, const Marking& marking);

}  // namespace mercury
