// SPDX-License-Identifier: MIT
//
// Between types and bytes: requests to be sent, and answers as they came. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "common/result.hpp"
#include "netlink/types.hpp"

namespace mercury::netlink {

using Datagram = std::vector<std::byte>;

/// Every request asks to be answered, under this number.
using Sequence = std::uint32_t;

Datagram encode_get_links(Sequence sequence);
/// Of all devices: the kernel knows no other dump.
Datagram encode_get_qdiscs(Sequence sequence);
Datagram encode_get_classes(Sequence sequence, int ifindex, Handle qdisc);
/// An error if it has more deadlines than a request may have, or a kind that can be none.
Result<Datagram> encode(Sequence sequence, const QdiscRequest& request);
Datagram encode(Sequence sequence, const ClassRequest& request);

/// The last answer to a request.
struct End {
    std::optional<Error> error;  // the kernel's sentence, or that of its errno
};

struct Answer {
    Sequence sequence = 0;     // 0: nobody asked
    bool interrupted = false;  // a dump that is not of one moment
    std::variant<End, Changed<Link>, Changed<Qdisc>, Changed<Class>> body;
};

/// The messages of one datagram. Those of other types, and attributes that are unknown or of no
/// length that makes sense, come from other versions of the kernel and are left out; what is cut
/// off or contradicts itself is an error.
Result<std::vector<Answer>> decode(std::span<const std::byte> datagram);

}  // namespace mercury::netlink
