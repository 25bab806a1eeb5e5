// SPDX-License-Identifier: MIT
//
// The messages: what one end writes the other one reads, and whatever else comes is an error.
#include "transport/wire.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace mercury;
using namespace mercury::transport;

namespace {

using Json = nlohmann::json;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

Result<Control> decode(std::string_view text) {
    return decode_control(bytes_of(text));
}

/// The error of TEXT, without its beginning that all have.
std::string fault(std::string_view text) {
    const auto decoded = decode(text);
    if (decoded)
        return "";
    constexpr std::string_view beginning = "sent a control message that is wrong: ";
    REQUIRE_THAT(decoded.error().message, Catch::StartsWith(std::string(beginning)));
    return decoded.error().message.substr(beginning.size());
}

std::string fault_of(const Json& json) {
    return fault(json.dump());
}

/// As the other end sees it.
Control through_the_wire(const Control& message) {
    const auto bytes = encode(message);
    const std::span all(bytes);
    const auto length = decode_control_length(all.first<control_prefix_size>(), control_bytes_max);
    REQUIRE(length.value() == bytes.size() - control_prefix_size);
    return decode_control(all.subspan(control_prefix_size)).value();
}

Join sample_join() {
    Join join;
    join.rank = 3;
    join.workers = std::numeric_limits<std::uint32_t>::max();
    join.server = 1;
    join.servers = 2;
    join.order = SumOrder::rank;
    join.pull_marks = {0, 1, std::numeric_limits<std::uint32_t>::max()};
    join.hints = true;
    join.dscp = true;
    join.tensors = {{"a\"\n\xc3\xa4", ElementType::bf16, Reduction::mean, 2,
                     std::numeric_limits<std::uint64_t>::max(), 5, 7},
                    {"b", ElementType::f16, Reduction::sum, 0, 1, 0, 1}};
    return join;
}

Json sample_json() {
    const auto bytes = encode(Control{sample_join()});
    const auto* const text = reinterpret_cast<const char*>(bytes.data());
    return Json::parse(text + control_prefix_size, text + bytes.size());
}

}  // namespace

TEST_CASE("preambles") {
    for (const auto kind : {ConnectionKind::control, ConnectionKind::push, ConnectionKind::pull})
        REQUIRE(decode_preamble(encode_preamble(kind)).value() == kind);

    const auto good = encode_preamble(ConnectionKind::push);
    REQUIRE(std::memcmp(good.data(), "MRCRY\0\1P", preamble_size) == 0);
    // Each byte counts, and each other value of it is refused or another kind.
    for (std::size_t at = 0; at < preamble_size; ++at) {
        for (unsigned value = 0; value < 256; ++value) {
            auto changed = good;
            changed[at] = static_cast<std::byte>(value);
            CAPTURE(at, value);
            const bool right = changed == good || (at == 7 && (value == 'C' || value == 'L'));
            REQUIRE(decode_preamble(changed).has_value() == right);
        }
    }
    auto other = good;
    other[6] = std::byte{9};
    REQUIRE(decode_preamble(other).error().message ==
            "speaks version 9 of the protocol, and this is version 1");
}

TEST_CASE("attachments and frame headers, in network byte order") {
    Attachment attachment;
    for (std::size_t i = 0; i < attachment.session.size(); ++i)
        attachment.session[i] = static_cast<std::byte>(i);
    attachment.priority_class = 0x01020304;
    const auto bytes = encode(attachment);
    REQUIRE(bytes[16] == std::byte{1});
    REQUIRE(bytes[19] == std::byte{4});
    REQUIRE(decode_attachment(bytes).session == attachment.session);
    REQUIRE(decode_attachment(bytes).priority_class == attachment.priority_class);

    const FrameHeader header{0x01020304, 0x1122334455667788, 0x99aabbccddeeff00,
                             std::numeric_limits<std::uint64_t>::max()};
    auto frame = encode(header);
    REQUIRE(std::memcmp(frame.data(), "MFRM\1\2\3\4\x11\x22", 10) == 0);
    const auto decoded = decode_frame_header(frame).value();
    REQUIRE(decoded.tensor == header.tensor);
    REQUIRE(decoded.round == header.round);
    REQUIRE(decoded.offset == header.offset);
    REQUIRE(decoded.bytes == header.bytes);
    for (std::size_t at = 0; at < 4; ++at) {
        auto changed = frame;
        changed[at] ^= std::byte{1};
        REQUIRE(decode_frame_header(changed).error().message ==
                "sent something that is not a frame");
    }
}

TEST_CASE("control messages come through") {
    const auto hello = std::get<Hello>(through_the_wire(Hello{"job \"1\"\n", "t\xc3\xb6k"}));
    REQUIRE(hello.job == "job \"1\"\n");
    REQUIRE(hello.token == "t\xc3\xb6k");

    const Join join = sample_join();
    const auto read = std::get<Join>(through_the_wire(join));
    REQUIRE(read.rank == join.rank);
    REQUIRE(read.workers == join.workers);
    REQUIRE(read.server == join.server);
    REQUIRE(read.servers == join.servers);
    REQUIRE(read.order == join.order);
    REQUIRE(read.pull_marks == join.pull_marks);
    REQUIRE(read.hints == join.hints);
    REQUIRE(read.dscp == join.dscp);
    REQUIRE(read.tensors == join.tensors);
    REQUIRE(std::get<Join>(through_the_wire(Join{})).tensors.empty());

    Welcome welcome;
    for (std::size_t i = 0; i < welcome.session.size(); ++i)
        welcome.session[i] = static_cast<std::byte>(i * 17);
    REQUIRE(std::get<Welcome>(through_the_wire(welcome)).session == welcome.session);

    REQUIRE(std::holds_alternative<Ping>(through_the_wire(Ping{})));
    REQUIRE(std::holds_alternative<Pong>(through_the_wire(Pong{})));
    REQUIRE(std::holds_alternative<Leave>(through_the_wire(Leave{})));
    REQUIRE(std::get<Failure>(through_the_wire(Failure{"why"})).message == "why");
    // A reason may quote a peer's bytes.
    REQUIRE(std::get<Failure>(through_the_wire(Failure{"not \xff text"})).message ==
            "not \xef\xbf\xbd text");
}

TEST_CASE("a length in front is 1 to the limit") {
    const auto length = [](std::uint32_t value, std::size_t limit) {
        const std::array<std::byte, 4> prefix{
            static_cast<std::byte>(value >> 24), static_cast<std::byte>(value >> 16 & 0xff),
            static_cast<std::byte>(value >> 8 & 0xff), static_cast<std::byte>(value & 0xff)};
        return decode_control_length(prefix, limit);
    };
    REQUIRE(length(1, 10).value() == 1);
    REQUIRE(length(10, 10).value() == 10);
    REQUIRE(length(0x01020304, control_bytes_max * 2).value() == 0x01020304);
    REQUIRE(length(0, 10).error().message ==
            "announced a control message of 0 bytes; 1 to 10 are allowed");
    REQUIRE_FALSE(length(11, 10).has_value());
    REQUIRE_FALSE(length(0xffffffff, control_bytes_max).has_value());
}

TEST_CASE("no beginning of a message is a message") {
    for (const Control& message : {Control{Hello{"job", "token"}}, Control{sample_join()},
                                   Control{Welcome{}}, Control{Ping{}}, Control{Failure{"x"}}}) {
        const auto bytes = encode(message);
        const auto text = std::span(bytes).subspan(control_prefix_size);
        for (std::size_t size = 0; size < text.size(); ++size)
            REQUIRE_FALSE(decode_control(text.first(size)).has_value());
    }
}

TEST_CASE("random bytes, and messages with one byte changed, are an error or a message") {
    std::mt19937 random(3);
    std::uniform_int_distribution<int> any(0, 255);
    for (int i = 0; i < 20'000; ++i) {
        std::string text(static_cast<std::size_t>(any(random)), '\0');
        for (char& letter : text)
            letter = static_cast<char>(any(random));
        REQUIRE_FALSE(decode(text).has_value());
    }
    const std::string join = sample_json().dump();
    for (std::size_t at = 0; at < join.size(); ++at) {
        for (const char value : {'\0', '"', '{', ']', '-', '9', 'e', '\xff', ' '}) {
            auto changed = join;
            changed[at] = value;
            const auto decoded = decode(changed);
            if (decoded && std::holds_alternative<Join>(decoded.value()))
                REQUIRE(std::get<Join>(decoded.value()).tensors.size() == 2);
        }
    }
}

TEST_CASE("every field must be there, and of its type") {
    const Json good = sample_json();
    REQUIRE(fault_of(good) == "");
    const std::vector<Json> others{nullptr,
                                   -1,
                                   0.5,
                                   1e300,
                                   "x",
                                   "",
                                   true,
                                   "-1",
                                   Json::array(),
                                   Json::object(),
                                   Json::array({Json::array()})};
    const auto try_all = [&](const Json::json_pointer& place) {
        Json without = good;
        without[place.parent_pointer()].erase(place.back());
        CAPTURE(place.to_string());
        REQUIRE(fault_of(without) != "");
        for (const Json& other : others) {
            if (other.type() == good[place].type() && other.type() != Json::value_t::string)
                continue;
            if (other.is_string() && good[place].is_string() && place.back() == "key")
                continue;  // any text is a key
            Json changed = good;
            changed[place] = other;
            CAPTURE(other.dump());
            REQUIRE(fault_of(changed) != "");
        }
    };
    for (const auto& [name, value] : good.items())
        try_all(Json::json_pointer("/" + name));
    for (const auto& [name, value] : good["tensors"][1].items())
        try_all(Json::json_pointer("/tensors/1/" + name));
}

TEST_CASE("numbers out of range are refused, not cut") {
    const auto with = [](const char* place, const Json& value) {
        Json changed = sample_json();
        changed[Json::json_pointer(place)] = value;
        return changed;
    };
    REQUIRE(fault_of(with("/rank", 4294967296)) == "\"rank\" is not a number of 0 to 4294967295");
    REQUIRE(fault_of(with("/rank", -1)) == "\"rank\" is not a number of 0 to 4294967295");
    REQUIRE(fault_of(with("/pull_marks/1", -1)) ==
            "\"pull_marks\" is not a number of 0 to 4294967295");
    REQUIRE(fault_of(with("/pull_marks/1", 4294967296)) ==
            "\"pull_marks\" is not a number of 0 to 4294967295");
    REQUIRE(fault_of(with("/pull_marks/1", 0.5)) != "");
    REQUIRE(fault_of(with("/pull_marks", 1)) == "\"pull_marks\" is not a list");
    REQUIRE(fault_of(with("/tensors", Json::object())) == "\"tensors\" is not a list");
    // Beyond 2^64 a number is read as one with a fraction.
    std::string huge = sample_json().dump();
    const std::string digits = "18446744073709551615";
    huge.replace(huge.find(digits), digits.size(), "18446744073709551616");
    REQUIRE(fault(huge) == "\"total\" is not a number of 0 to 18446744073709551615");
}

TEST_CASE("deep, doubled and foreign text") {
    REQUIRE(fault(std::string(1'000'000, '[')) == "it is nested too deeply");
    REQUIRE(fault(R"({"type":{"a":{"b":{"c":{"d":{}}}}}})") == "it is nested too deeply");
    // Of two fields of one name the last one counts.
    REQUIRE(std::holds_alternative<Leave>(decode(R"({"type":"ping","type":"leave"})").value()));
    REQUIRE(fault("{\"type\":\"failure\",\"message\":\"\xc0\xaf\"}") != "");
    REQUIRE(fault("\xff\xfe{\0}") != "");
    REQUIRE(fault(R"({"type":"ping"} )") == "");
    REQUIRE(fault(R"({"type":"ping"}{})") != "");
    REQUIRE(fault(R"({"type":"PING"})") == "unknown type \"PING\"");
    REQUIRE(fault(R"({"type":"ping","more":[1,2]})") == "");  // from a later version
}

TEST_CASE("text that JSON can carry") {
    REQUIRE(is_utf8(""));
    REQUIRE(is_utf8("gradient/\xc3\xa4/\xf0\x9f\x98\x80"));
    REQUIRE_FALSE(is_utf8("\xff"));
    REQUIRE_FALSE(is_utf8("\xc3"));
    REQUIRE_FALSE(is_utf8("\xed\xa0\x80"));  // half a surrogate pair
}

TEST_CASE("classes have falling DSCPs") {
    REQUIRE(dscp_of_class(0) == 34);  // AF41
    REQUIRE(dscp_of_class(1) == 26);
    REQUIRE(dscp_of_class(2) == 18);
    REQUIRE(dscp_of_class(3) == 10);  // AF11
    REQUIRE(dscp_of_class(15) == 10);
}
