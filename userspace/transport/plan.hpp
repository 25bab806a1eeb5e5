// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>

namespace mercury::transport {

/// Elements FIRST to FIRST + COUNT of a tensor.
struct Part {
    std::size_t first = 0;
    std::size_t count = 0;
};

/// What server INDEX of SERVERS has of a tensor of ELEMENTS: contiguous, in the order of the
/// servers, and of equal size but for one element. With fewer elements than servers the ones at
/// the front, counted from TURN on, have one each and the others none; a worker gives tensors
/// successive turns, so that small ones do not all meet at the same server.
constexpr Part part_of(std::size_t elements, std::size_t index, std::size_t servers,
                       std::size_t turn) {
    const std::size_t share = elements / servers;
    // The rest goes to the servers from TURN on, going round: one more each.
    const std::size_t start = turn % servers;
    const std::size_t end = start + elements % servers;
    const auto larger_before = [&](std::size_t server) {
        const auto among = [&](std::size_t from, std::size_t to) {
            return server < from ? 0 : std::min(server, to) - from;
        };
        return among(start, std::min(end, servers)) + (end > servers ? among(0, end - servers) : 0);
    };
    const std::size_t first = index * share + larger_before(index);
    const std::size_t last = (index + 1) * share + larger_before(index + 1);
    return {first, last - first};
}

}  // namespace mercury::transport
