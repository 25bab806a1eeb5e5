// SPDX-License-Identifier: MIT
#include "hints/protocol.hpp"

#include <string>

#include <catch2/catch.hpp>

using namespace mercury;
using namespace mercury::hints;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

Failure refusal(const std::string& bytes) {
    const auto decoded = decode_request(bytes);
    INFO(bytes.substr(0, 200));
    REQUIRE(std::holds_alternative<Failure>(decoded));
    return std::get<Failure>(decoded);
}

Request decoded(const std::string& bytes) {
    const auto request = decode_request(bytes);
    INFO(bytes);
    if (const auto* const failure = std::get_if<Failure>(&request))
        FAIL(failure->message);
    return std::get<Request>(request);
}

std::string job_with(const std::string& layers, const std::string& more = R"("classes":4)") {
    return R"({"type":"job","name":"net","layers":)" + layers + "," + more + "}";
}

std::string layer_with(const std::string& fields) {
    return job_with(R"([{"name":"a","bytes":1}, {)" + fields + "}]");
}

}  // namespace

TEST_CASE("every request survives being written and read", "[hints]") {
    const DeclareJob job{"net é", {{"a", 1ms, 2ms, 3}, {"b", 0ns, 0ns, 4}}, 4, 7};
    const std::vector<Request> requests{
        Hello{1, "test"}, job, Assign{3, 65536}, Assign{0, {}}, Step{}, QueryStatus{}, Bye{}};
    for (const Request& request : requests)
        CHECK(decoded(encode(request)) == request);
}

TEST_CASE("every answer survives being written and read", "[hints]") {
    Status status{"mercuryd 1", 5s, 1, 2, 3, 4, "on", {{"eth0", 8, true, "none"}}, {}, {}, 0};
    status.jobs.push_back({3, "net", 1000, 2, 9, 5ms, {{0x30001, 2, 1ms}, {0x30002, 0, {}}}});
    status.rules.push_back({"backup", 7, 1, "no such cgroup"});
    status.left_out = 5;
    const std::vector<Answer> answers{
        Welcome{1, "mercuryd 1"},
        JobDeclared{3, {{0, 4, 0x30001, 1, 1us}, {5, 9, 0x30002, 2, {}}}},
        Assigned{1, 0x30002},
        Stepped{},
        status,
        Goodbye{},
        Failure{Code::Version, "no", "hello", {1, 2}},
        Failure{Code::Busy, "later", "assign", {}}};
    for (const Answer& answer : answers) {
        const auto again = decode_answer(encode(answer));
        REQUIRE(again);
        CHECK(again.value() == answer);
    }
}

TEST_CASE("unknown fields are passed over", "[hints]") {
    CHECK(decoded(R"({"type":"step","when":[1,{"a":2}],"é":null})") == Request(Step{}));
    CHECK(decoded(R"({"type":"assign","layer":3,"mood":"good"})") == Request(Assign{3, {}}));
}

TEST_CASE("what is at its limit is accepted, and one more is not", "[hints]") {
    const std::string longest(name_bytes_max, 'x');
    CHECK(std::get<Hello>(decoded(R"({"type":"hello","version":1,"client":")" + longest + "\"}"))
              .client == longest);
    CHECK(refusal(R"({"type":"hello","version":1,"client":"x)" + longest + "\"}").code ==
          Code::Invalid);

    const auto layers = [](std::size_t count) {
        std::string list = "[";
        for (std::size_t i = 0; i < count; ++i)
            list += i == 0 ? R"({"name":"l","bytes":1})" : R"(,{"name":"l","bytes":1})";
        return list + "]";
    };
    CHECK(std::get<DeclareJob>(decoded(job_with(layers(layers_max)))).layers.size() == layers_max);
    CHECK(refusal(job_with(layers(layers_max + 1))).code == Code::Invalid);

    const std::string open(depth_max - 1, '[');
    const std::string close(depth_max - 1, ']');
    CHECK(decoded(R"({"type":"step","x":)" + open + close + "}") == Request(Step{}));
    CHECK(refusal(R"({"type":"step","x":[)" + open + close + "]}").code == Code::Malformed);

    std::string message = R"({"type":"step"})";
    message.resize(message_bytes_max, ' ');
    CHECK(decoded(message) == Request(Step{}));
    CHECK(refusal(message + " ").code == Code::Malformed);

    CHECK(decoded(R"({"type":"assign","layer":1023,"lowat":1073741824})") ==
          Request(Assign{1023, lowat_max}));
    CHECK(refusal(R"({"type":"assign","layer":1024})").code == Code::Invalid);
    CHECK(decoded(layer_with(
              R"("name":"b","bytes":10000000000000,"forward_ns":3600000000000,"backward_ns":0)")) !=
          Request(Step{}));
}

TEST_CASE("braces and quotes in strings do not count as nesting", "[hints]") {
    CHECK(decoded(R"({"type":"step","x":"[[[[[[[[[[\"[[[[{{{{"})") == Request(Step{}));
}

TEST_CASE("an error does not repeat the message that it is about", "[hints]") {
    const auto failure = refusal("{\"type\":\"" + std::string(100'000, 'x') + "\x01\"}");
    CHECK(failure.code == Code::Malformed);
    CHECK(failure.message.size() < 500);
    CHECK(encode(Answer(refusal("{\"type\":\"" + std::string(100'000, 'x') + "\"}"))).size() < 500);
}

TEST_CASE("an answer is UTF-8 whatever was put into it", "[hints]") {
    const auto answer = decode_answer(encode(Answer(Failure{Code::Kernel, "\xff\xfe", "", {}})));
    CHECK(answer);
}

// What a hostile or broken client may send: each is refused, with the place in the message.

struct Hostile {
    const char* name;
    std::string bytes;
    Code code;
    const char* says;
};

TEST_CASE("hostile bytes are refused", "[hints][hostile]") {
    const std::string deep(60'000, '[');
    const auto text = [](const char* bytes) { return std::string(bytes); };
    const auto hostile = GENERATE_COPY(
        Hostile{"nothing", "", Code::Malformed, "JSON"},
        Hostile{"a space", " ", Code::Malformed, "JSON"},
        Hostile{"a zero byte", std::string(1, '\0'), Code::Malformed, "JSON"},
        Hostile{"zero bytes", std::string(100'000, '\0'), Code::Malformed, "JSON"},
        Hostile{"a byte order mark alone", "\xef\xbb\xbf", Code::Malformed, "JSON"},
        Hostile{"half a message", R"({"type":"hel)", Code::Malformed, "JSON"},
        Hostile{"two messages", R"({"type":"step"}{"type":"step"})", Code::Malformed, "JSON"},
        Hostile{"text after the end", R"({"type":"step"} x)", Code::Malformed, "JSON"},
        Hostile{"a comma too many", R"({"type":"step",})", Code::Malformed, "JSON"},
        Hostile{"a comment", R"({"type":"step"} // hi)", Code::Malformed, "JSON"},
        Hostile{"single quotes", "{'type':'step'}", Code::Malformed, "JSON"},
        Hostile{"a number", "42", Code::Malformed, "object"},
        Hostile{"a string", R"("step")", Code::Malformed, "object"},
        Hostile{"null", "null", Code::Malformed, "object"},
        Hostile{"an array", R"([{"type":"step"}])", Code::Malformed, "object"},
        Hostile{"NaN", R"({"type":"step","x":NaN})", Code::Malformed, "JSON"},
        Hostile{"a number that no double holds", R"({"type":"step","x":1e999999})", Code::Malformed,
                "too large"},
        Hostile{"a lone continuation byte", "{\"type\":\"\x80\"}", Code::Malformed, "JSON"},
        Hostile{"an overlong slash", "{\"type\":\"\xc0\xaf\"}", Code::Malformed, "JSON"},
        Hostile{"half a character", "{\"type\":\"\xe2\x82\"}", Code::Malformed, "JSON"},
        Hostile{"a surrogate in UTF-8", "{\"type\":\"\xed\xa0\x80\"}", Code::Malformed, "JSON"},
        Hostile{"beyond Unicode", "{\"type\":\"\xf5\x80\x80\x80\"}", Code::Malformed, "JSON"},
        Hostile{"Latin-1", "{\"type\":\"step\",\"x\":\"\xe9\"}", Code::Malformed, "JSON"},
        Hostile{"half a surrogate pair", R"({"type":"\ud800"})", Code::Malformed, "JSON"},
        Hostile{"a control character in a string", "{\"type\":\"a\nb\"}", Code::Malformed, "JSON"},
        Hostile{"deep arrays", deep, Code::Malformed, "deep"},
        Hostile{"deep arrays, closed", deep + std::string(60'000, ']'), Code::Malformed, "deep"},
        Hostile{"deep objects",
                [] {
                    std::string all;
                    for (int i = 0; i < 20'000; ++i)
                        all += "{\"a\":";
                    return all;
                }(),
                Code::Malformed, "deep"},
        Hostile{"depth hidden behind an escaped quote", R"({"a":"\"","b":[[[[[[[[[[]]]]]]]]]]})",
                Code::Malformed, "deep"},
        Hostile{"1 MB of spaces", std::string(1'000'000, ' '), Code::Malformed, "bytes"},
        Hostile{"1 MB of JSON", "{\"type\":\"" + std::string(1'000'000, 'x') + "\"}",
                Code::Malformed, "bytes"},
        Hostile{"an empty object", "{}", Code::Invalid, "type is missing"},
        Hostile{"a type that is a number", R"({"type":1})", Code::Invalid, "type must be a string"},
        Hostile{"a type that is null", R"({"type":null})", Code::Invalid, "type"},
        Hostile{"a type that is an array", R"({"type":["step"]})", Code::Invalid, "type"},
        Hostile{"an empty type", R"({"type":""})", Code::Unknown, "no request of this type"},
        Hostile{"a type in capitals", R"({"type":"STEP"})", Code::Unknown, "hello, job"},
        Hostile{"a type with a zero byte", R"({"type":"step\u0000"})", Code::Unknown, "type"},
        Hostile{"an answer's type", R"({"type":"error"})", Code::Unknown, "type"},
        Hostile{"a hello without a version", R"({"type":"hello","client":"x"})", Code::Invalid,
                "version is missing"},
        Hostile{"a negative version", R"({"type":"hello","version":-1,"client":"x"})",
                Code::Invalid, "version"},
        Hostile{"a version with a fraction", R"({"type":"hello","version":1.0,"client":"x"})",
                Code::Invalid, "version"},
        Hostile{"a version as a string", R"({"type":"hello","version":"1","client":"x"})",
                Code::Invalid, "version"},
        Hostile{"a version beyond 32 bits", R"({"type":"hello","version":4294967296,"client":"x"})",
                Code::Invalid, "version"},
        Hostile{"a version beyond 64 bits",
                R"({"type":"hello","version":18446744073709551616,"client":"x"})", Code::Invalid,
                "version"},
        Hostile{"an empty client", R"({"type":"hello","version":1,"client":""})", Code::Invalid,
                "client must have 1 to 128"},
        Hostile{"a client with a line break", R"({"type":"hello","version":1,"client":"a\nb"})",
                Code::Invalid, "control"},
        Hostile{"a client with an escape sequence",
                R"({"type":"hello","version":1,"client":"\u001b[2J"})", Code::Invalid, "control"},
        Hostile{"a client with a zero byte", R"({"type":"hello","version":1,"client":"a\u0000"})",
                Code::Invalid, "control"},
        Hostile{"a client with a delete", R"({"type":"hello","version":1,"client":"a\u007f"})",
                Code::Invalid, "control"},
        Hostile{"a job without layers", R"({"type":"job","name":"a","classes":4})", Code::Invalid,
                "layers is missing"},
        Hostile{"a job with no layer", job_with("[]"), Code::Invalid, "layers must be an array"},
        Hostile{"layers as an object", job_with(R"({"0":{"name":"a","bytes":1}})"), Code::Invalid,
                "layers must be an array"},
        Hostile{"layers as a string", job_with(R"("all")"), Code::Invalid, "layers"},
        Hostile{"a layer as a number", job_with("[7]"), Code::Invalid,
                "layers[0] is not an object"},
        Hostile{"a layer as null", job_with("[null]"), Code::Invalid, "layers[0]"},
        Hostile{"a layer without a name", layer_with(R"("bytes":1)"), Code::Invalid,
                "layers[1].name is missing"},
        Hostile{"a layer without bytes", layer_with(R"("name":"b")"), Code::Invalid,
                "layers[1].bytes is missing"},
        Hostile{"a layer of no bytes", layer_with(R"("name":"b","bytes":0)"), Code::Invalid,
                "layers[1].bytes"},
        Hostile{"a layer of negative bytes", layer_with(R"("name":"b","bytes":-5)"), Code::Invalid,
                "layers[1].bytes"},
        Hostile{"a layer beyond all disks", layer_with(R"("name":"b","bytes":10000000000001)"),
                Code::Invalid, "layers[1].bytes"},
        Hostile{"bytes as true", layer_with(R"("name":"b","bytes":true)"), Code::Invalid,
                "layers[1].bytes"},
        Hostile{"bytes in scientific notation", layer_with(R"("name":"b","bytes":1e6)"),
                Code::Invalid, "layers[1].bytes"},
        Hostile{"a layer with a long name",
                layer_with("\"name\":\"" + std::string(129, 'n') + "\",\"bytes\":1"), Code::Invalid,
                "layers[1].name"},
        Hostile{"a negative time", layer_with(R"("name":"b","bytes":1,"forward_ns":-1)"),
                Code::Invalid, "layers[1].forward_ns"},
        Hostile{"more than an hour",
                layer_with(R"("name":"b","bytes":1,"backward_ns":3600000000001)"), Code::Invalid,
                "layers[1].backward_ns"},
        Hostile{"a time as a string", layer_with(R"("name":"b","bytes":1,"forward_ns":"1ms")"),
                Code::Invalid, "layers[1].forward_ns"},
        Hostile{"a time that is null", layer_with(R"("name":"b","bytes":1,"forward_ns":null)"),
                Code::Invalid, "layers[1].forward_ns"},
        Hostile{"no classes", job_with(R"([{"name":"a","bytes":1}])", R"("classes":0)"),
                Code::Invalid, "classes"},
        Hostile{"too many classes", job_with(R"([{"name":"a","bytes":1}])", R"("classes":33)"),
                Code::Invalid, "classes must be a whole number, 1 to 32"},
        Hostile{"a number beyond the mark",
                job_with(R"([{"name":"a","bytes":1}])", R"("classes":1,"number":256)"),
                Code::Invalid, "number"},
        Hostile{"a negative number",
                job_with(R"([{"name":"a","bytes":1}])", R"("classes":1,"number":-1)"),
                Code::Invalid, "number"},
        Hostile{"a name that is an object",
                R"({"type":"job","name":{},"classes":1,"layers":[{"name":"a","bytes":1}]})",
                Code::Invalid, "name must be a string"},
        Hostile{"an assign without a layer", text(R"({"type":"assign"})"), Code::Invalid,
                "layer is missing"},
        Hostile{"a layer with a fraction", text(R"({"type":"assign","layer":0.5})"), Code::Invalid,
                "layer"},
        Hostile{"a layer beyond 64 bits", text(R"({"type":"assign","layer":99999999999999999999})"),
                Code::Invalid, "layer"},
        Hostile{"a lowat of nothing", text(R"({"type":"assign","layer":0,"lowat":0})"),
                Code::Invalid, "lowat"},
        Hostile{"a lowat beyond an int", text(R"({"type":"assign","layer":0,"lowat":4294967295})"),
                Code::Invalid, "lowat"});
    INFO(hostile.name);
    const auto failure = refusal(hostile.bytes);
    CHECK(failure.code == hostile.code);
    CHECK_THAT(failure.message, Contains(hostile.says));
    CHECK(decode_answer(encode(Answer(failure))));
}

TEST_CASE("a client does not take everything for an answer", "[hints][hostile]") {
    for (const char* const bytes :
         {"", "{}", "[]", R"({"type":"assign"})", R"({"type":"hello","version":1})",
          R"({"type":"job","number":1,"classes":[]})",
          R"({"type":"job","number":300,"classes":[{}]})",
          R"({"type":"job","number":1,"classes":[{"first":3,"last":2,"mark":1,"priority":1}]})",
          R"({"type":"error"})", R"({"type":"error","code":"strange","message":"x"})",
          R"({"type":"surprise"})"}) {
        INFO(bytes);
        CHECK_FALSE(decode_answer(bytes));
    }
}
