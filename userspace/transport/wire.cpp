// SPDX-License-Identifier: MIT
#include "transport/wire.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mercury::transport {
namespace {

using Json = nlohmann::json;

constexpr std::string_view preamble_word = "MRCRY";
constexpr std::uint32_t frame_magic = 0x4d46524d;  // "MFRM"

template <std::unsigned_integral T>
void put(std::byte* at, T value) {
    for (std::size_t i = sizeof(T); i-- > 0; value = static_cast<T>(value >> 8))
        at[i] = static_cast<std::byte>(value & 0xff);
}

// A single byte shifts by less than its width, which the loop does not do.
void put(std::byte* at, std::uint8_t value) {
    *at = static_cast<std::byte>(value);
}

template <std::unsigned_integral T>
T get(const std::byte* at) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
        value = value << 8 | std::to_integer<std::uint64_t>(at[i]);
    return static_cast<T>(value);
}

std::string to_hex(const Session& session) {
    std::string text;
    for (const std::byte byte : session)
        text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    return text;
}

Session session_from_hex(const std::string& text) {
    Session session{};
    if (text.size() != 2 * session.size() ||
        text.find_first_not_of("0123456789abcdef") != std::string::npos)
        throw std::invalid_argument("\"session\" is not 32 hexadecimal digits");
    for (std::size_t i = 0; i < session.size(); ++i)
        session[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    return session;
}

// Each takes a field of OBJECT or throws what is wrong with it, with its name.

template <std::unsigned_integral T>
T number_from(const Json& value, const char* name) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<T>::max())
        throw std::invalid_argument(
            fmt::format("\"{}\" is not a number of 0 to {}", name, std::numeric_limits<T>::max()));
    return value.get<T>();
}

template <std::unsigned_integral T>
T number(const Json& object, const char* name) {
    return number_from<T>(object.at(name), name);
}

const Json& list(const Json& object, const char* name) {
    const Json& value = object.at(name);
    if (!value.is_array())
        throw std::invalid_argument(fmt::format("\"{}\" is not a list", name));
    return value;
}

template <typename T>
T named(const Json& object, const char* name, Result<T> (*parse)(std::string_view)) {
    auto value = parse(object.at(name).get<std::string>());
    if (!value)
        throw std::invalid_argument(fmt::format("\"{}\": {}", name, value.error().message));
    return value.value();
}

Json to_json(const TensorRange& range) {
    return {{"key", range.key},
            {"type", to_string(range.type)},
            {"reduction", to_string(range.reduction)},
            {"class", range.priority_class},
            {"total", range.total},
            {"offset", range.offset},
            {"elements", range.elements}};
}

TensorRange range_from(const Json& json) {
    TensorRange range;
    range.key = json.at("key").get<std::string>();
    range.type = named(json, "type", parse_element_type);
    range.reduction = named(json, "reduction", parse_reduction);
    range.priority_class = number<std::uint32_t>(json, "class");
    range.total = number<std::uint64_t>(json, "total");
    range.offset = number<std::uint64_t>(json, "offset");
    range.elements = number<std::uint64_t>(json, "elements");
    return range;
}

Json to_json(const Hello& hello) {
    return {{"type", "hello"}, {"job", hello.job}, {"token", hello.token}};
}

Json to_json(const Join& join) {
    Json tensors = Json::array();
    for (const TensorRange& range : join.tensors)
        tensors.push_back(to_json(range));
    return {{"type", "join"},
            {"rank", join.rank},
            {"workers", join.workers},
            {"server", join.server},
            {"servers", join.servers},
            {"order", to_string(join.order)},
            {"pull_marks", join.pull_marks},
            {"hints", join.hints},
            {"dscp", join.dscp},
            {"tensors", std::move(tensors)}};
}

Join join_from(const Json& json) {
    Join join;
    join.rank = number<std::uint32_t>(json, "rank");
    join.workers = number<std::uint32_t>(json, "workers");
    join.server = number<std::uint32_t>(json, "server");
    join.servers = number<std::uint32_t>(json, "servers");
    join.order = named(json, "order", parse_sum_order);
    for (const Json& mark : list(json, "pull_marks"))
        join.pull_marks.push_back(number_from<std::uint32_t>(mark, "pull_marks"));
    join.hints = json.at("hints").get<bool>();
    join.dscp = json.at("dscp").get<bool>();
    for (const Json& tensor : list(json, "tensors"))
        join.tensors.push_back(range_from(tensor));
    return join;
}

Json to_json(const Welcome& welcome) {
    return {{"type", "welcome"}, {"session", to_hex(welcome.session)}};
}
Json to_json(const Ping& /*ping*/) {
    return {{"type", "ping"}};
}
Json to_json(const Pong& /*pong*/) {
    return {{"type", "pong"}};
}
Json to_json(const Leave& /*leave*/) {
    return {{"type", "leave"}};
}
Json to_json(const Failure& failure) {
    return {{"type", "failure"}, {"message", failure.message}};
}

/// An error may quote a peer's bytes, which need not be text.
std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The messages are flat: depth would only cost memory.
constexpr int depth_max = 3;

Json parse(std::span<const std::byte> text) {
    const auto* const begin = reinterpret_cast<const char*>(text.data());
    return Json::parse(begin, begin + text.size(),
                       [](int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
                           if (depth > depth_max)
                               throw std::invalid_argument("it is nested too deeply");
                           return true;
                       });
}

Control control_from(const Json& json) {
    const auto type = json.at("type").get<std::string>();
    if (type == "hello")
        return Hello{json.at("job").get<std::string>(), json.at("token").get<std::string>()};
    if (type == "join")
        return join_from(json);
    if (type == "welcome")
        return Welcome{session_from_hex(json.at("session").get<std::string>())};
    if (type == "ping")
        return Ping{};
    if (type == "pong")
        return Pong{};
    if (type == "leave")
        return Leave{};
    if (type == "failure")
        return Failure{json.at("message").get<std::string>()};
    throw std::invalid_argument(fmt::format("unknown type \"{}\"", type));
}

}  // namespace

Preamble encode_preamble(ConnectionKind kind) {
    Preamble preamble{};
    std::memcpy(preamble.data(), preamble_word.data(), preamble_word.size());
    put(preamble.data() + 5, protocol_version);
    put(preamble.data() + 7, static_cast<std::uint8_t>(kind));
    return preamble;
}

Result<ConnectionKind> decode_preamble(const Preamble& preamble) {
    if (std::memcmp(preamble.data(), preamble_word.data(), preamble_word.size()) != 0)
        return Error{"does not speak Mercury's push-pull protocol"};
    const auto version = get<std::uint16_t>(preamble.data() + 5);
    if (version != protocol_version) {
        return Error{fmt::format("speaks version {} of the protocol, and this is version {}",
                                 version, protocol_version)};
    }
    const auto kind = static_cast<ConnectionKind>(preamble[7]);
    if (kind != ConnectionKind::control && kind != ConnectionKind::push &&
        kind != ConnectionKind::pull)
        return Error{"asks for an unknown kind of connection"};
    return kind;
}

AttachmentBytes encode(const Attachment& attachment) {
    AttachmentBytes bytes{};
    std::copy(attachment.session.begin(), attachment.session.end(), bytes.begin());
    put(bytes.data() + 16, attachment.priority_class);
    return bytes;
}

Attachment decode_attachment(const AttachmentBytes& bytes) {
    Attachment attachment;
    std::copy_n(bytes.begin(), attachment.session.size(), attachment.session.begin());
    attachment.priority_class = get<std::uint32_t>(bytes.data() + 16);
    return attachment;
}

FrameHeaderBytes encode(const FrameHeader& header) {
    FrameHeaderBytes bytes{};
    put(bytes.data(), frame_magic);
    put(bytes.data() + 4, header.tensor);
    put(bytes.data() + 8, header.round);
    put(bytes.data() + 16, header.offset);
    put(bytes.data() + 24, header.bytes);
    return bytes;
}

Result<FrameHeader> decode_frame_header(const FrameHeaderBytes& bytes) {
    if (get<std::uint32_t>(bytes.data()) != frame_magic)
        return Error{"sent something that is not a frame"};
    return FrameHeader{get<std::uint32_t>(bytes.data() + 4), get<std::uint64_t>(bytes.data() + 8),
                       get<std::uint64_t>(bytes.data() + 16),
                       get<std::uint64_t>(bytes.data() + 24)};
}

bool is_utf8(const std::string& text) {
    try {
        static_cast<void>(Json(text).dump());
        return true;
    } catch (const Json::type_error&) {
        return false;
    }
}

std::vector<std::byte> encode(const Control& message) {
    const std::string text =
        std::visit([](const auto& content) { return dump(to_json(content)); }, message);
    std::vector<std::byte> bytes(control_prefix_size + text.size());
    put(bytes.data(), static_cast<std::uint32_t>(text.size()));
    std::memcpy(bytes.data() + control_prefix_size, text.data(), text.size());
    return bytes;
}

Result<std::size_t> decode_control_length(std::span<const std::byte, control_prefix_size> prefix,
                                          std::size_t limit) {
    const auto length = get<std::uint32_t>(prefix.data());
    if (length == 0 || length > limit) {
        return Error{fmt::format("announced a control message of {} bytes; 1 to {} are allowed",
                                 length, limit)};
    }
    return std::size_t{length};
}

Result<Control> decode_control(std::span<const std::byte> text) {
    try {
        return control_from(parse(text));
    } catch (const std::exception& problem) {
        return Error{fmt::format("sent a control message that is wrong: {}", problem.what())};
    }
}

}  // namespace mercury::transport
