// SPDX-License-Identifier: MIT
//
// The decoders of the hint protocol, for libFuzzer. What is decoded must survive being written and
// read again, and what is refused must be refused in a message that can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "hints/protocol.hpp"

using namespace mercury::hints;

namespace {

void check(bool holds) {
    if (!holds)
        std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto decoded = decode_request(bytes);
    if (const auto* const request = std::get_if<Request>(&decoded)) {
        const auto again = decode_request(encode(*request));
        check(std::holds_alternative<Request>(again) && std::get<Request>(again) == *request);
    } else {
        const std::string refusal = encode(Answer(std::get<Failure>(decoded)));
        check(refusal.size() < 1024 && decode_answer(refusal).has_value());
    }
    if (const auto answer = decode_answer(bytes)) {
        const auto again = decode_answer(encode(answer.value()));
        check(again.has_value() && again.value() == answer.value());
    }
    return 0;
}
