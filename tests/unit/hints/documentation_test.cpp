// SPDX-License-Identifier: MIT
//
// docs/hints.md has an example of each message and each error: what it says must be so.
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "hints/protocol.hpp"

using namespace mercury;
using namespace mercury::hints;

namespace {

struct Exchange {
    std::string request;
    std::string answer;
};

std::vector<Exchange> exchanges() {
    std::ifstream page(MERCURY_HINTS_PAGE);
    std::vector<Exchange> found;
    for (std::string line; std::getline(page, line);) {
        if (line.starts_with("    C: "))
            found.push_back({line.substr(7), ""});
        else if (line.starts_with("    D: "))
            found.back().answer = line.substr(7);
    }
    REQUIRE(found.size() > 15);
    return found;
}

}  // namespace

TEST_CASE("every example is a message, or refused as the page says", "[hints][docs]") {
    for (const auto& [request, answer] : exchanges()) {
        INFO(request << "\n" << answer);
        const auto documented = decode_answer(answer);
        INFO((documented ? "" : documented.error().message));
        REQUIRE(documented);
        CHECK(encode(documented.value()) == answer);

        const auto decoded = decode_request(request);
        if (const auto* const failure = std::get_if<Failure>(&decoded)) {
            CHECK(encode(Answer(*failure)) == answer);
        } else {
            const auto again = decode_request(encode(std::get<Request>(decoded)));
            CHECK(std::get<Request>(again) == std::get<Request>(decoded));
        }
    }
}

TEST_CASE("the page has an example of every request, answer and error", "[hints][docs]") {
    std::set<std::size_t> requests;
    std::set<std::size_t> answers;
    std::set<Code> codes;
    for (const auto& [request, answer] : exchanges()) {
        const auto decoded = decode_request(request);
        if (const auto* const one = std::get_if<Request>(&decoded))
            requests.insert(one->index());
        const auto answered = decode_answer(answer);
        REQUIRE(answered);
        answers.insert(answered.value().index());
        if (const auto* const failure = std::get_if<Failure>(&answered.value()))
            codes.insert(failure->code);
    }
    CHECK(requests.size() == std::variant_size_v<Request>);
    CHECK(answers.size() == std::variant_size_v<Answer>);
    CHECK(codes.size() == static_cast<std::size_t>(Code::Kernel) + 1);
}
