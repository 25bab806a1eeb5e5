// SPDX-License-Identifier: MIT
//
// What travels between worker and server. Every connection starts with a preamble that says what
// it is.
//
// A control connection then carries JSON messages, each behind its length: a hello and a join, a
// welcome, pings and pongs from both sides, and at the end a leave or a failure. Who wants no more
// than that says nothing more: the other side closes.
//
// A data connection carries one class of one worker in one direction: an attachment, then frames,
// each a header and the bytes of a tensor's range, little-endian elements as in memory. A push is
// one frame for the whole range; a pull is cut where the sum is finished. With both directions on
// one connection, acknowledgements would ride on data that waits in a queue.
//
// Integers of the binary parts are in network byte order.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/result.hpp"
#include "transport/element.hpp"

namespace mercury::transport {

static_assert(std::endian::native == std::endian::little, "tensors travel as they are in memory");

constexpr std::uint16_t protocol_version = 1;

enum class ConnectionKind : std::uint8_t { control = 'C', push = 'P', pull = 'L' };

constexpr std::size_t preamble_size = 8;
using Preamble = std::array<std::byte, preamble_size>;
Preamble encode_preamble(ConnectionKind kind);
Result<ConnectionKind> decode_preamble(const Preamble& preamble);

/// Known to the worker and the server only: nobody else can attach a connection.
using Session = std::array<std::byte, 16>;

struct Attachment {
    Session session{};
    std::uint32_t priority_class = 0;
};
constexpr std::size_t attachment_size = 20;
using AttachmentBytes = std::array<std::byte, attachment_size>;
AttachmentBytes encode(const Attachment& attachment);
Attachment decode_attachment(const AttachmentBytes& bytes);

struct FrameHeader {
    std::uint32_t tensor = 0;  // index in the join's list
    std::uint64_t round = 0;   // of this tensor, from 1
    std::uint64_t offset = 0;  // bytes, in the server's range
    std::uint64_t bytes = 0;   // that follow, never 0
};
constexpr std::size_t frame_header_size = 32;
using FrameHeaderBytes = std::array<std::byte, frame_header_size>;
FrameHeaderBytes encode(const FrameHeader& header);
Result<FrameHeader> decode_frame_header(const FrameHeaderBytes& bytes);

/// A server's part of a tensor.
struct TensorRange {
    std::string key;
    ElementType type = ElementType::f32;
    Reduction reduction = Reduction::sum;
    std::uint32_t priority_class = 0;
    std::uint64_t total = 0;     // elements of the whole tensor
    std::uint64_t offset = 0;    // elements
    std::uint64_t elements = 0;  // never 0

    friend bool operator==(const TensorRange&, const TensorRange&) = default;
};

/// First, and small, so that a stranger is turned away before he can ask for much.
struct Hello {
    std::string job;
    std::string token;
};
struct Join {
    std::uint32_t rank = 0;
    std::uint32_t workers = 0;
    std::uint32_t server = 0;  // which of the job's servers this one is
    std::uint32_t servers = 0;
    SumOrder order = SumOrder::arrival;
    std::vector<std::uint32_t> pull_marks;  // of the pull connections, by class; 0: none
    bool hints = false;                     // or they are marked by the daemon of the server's host
    bool dscp = false;
    std::vector<TensorRange> tensors;
};
struct Welcome {
    Session session{};
};
/// Wants a pong: each side asks as often as it needs to know that the other is alive.
struct Ping {};
struct Pong {};
/// The worker has all it wanted and goes.
struct Leave {};
/// From the server: the end of the job there, or the refusal of a join. From a worker: why it gives
/// up, for the other workers.
struct Failure {
    std::string message;
};
using Control = std::variant<Hello, Join, Welcome, Ping, Pong, Leave, Failure>;

/// Longest control message that is accepted, and longest hello.
constexpr std::size_t control_bytes_max = std::size_t{16} << 20;
constexpr std::size_t hello_bytes_max = 4096;
constexpr std::size_t control_prefix_size = 4;

/// JSON carries no other text.
bool is_utf8(const std::string& text);

/// With its length in front.
std::vector<std::byte> encode(const Control& message);
/// The length that stands in front, if it is 1 to LIMIT.
Result<std::size_t> decode_control_length(std::span<const std::byte, control_prefix_size> prefix,
                                          std::size_t limit);
/// Without its length.
Result<Control> decode_control(std::span<const std::byte> text);

/// DSCP of a class, assured forwarding from AF41 (class 0) to AF11 (class 3 and above): what
/// switches with priority queues usually know.
constexpr unsigned dscp_of_class(std::size_t priority_class) {
    return 34 - 8 * static_cast<unsigned>(priority_class < 3 ? priority_class : 3);
}

}  // namespace mercury::transport
