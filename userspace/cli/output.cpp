// SPDX-License-Identifier: MIT
#include "cli/output.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace mercury::cli {

void print(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

void print(const Json& json, bool pretty) {
    // A device's name need not be UTF-8.
    print(json.dump(pretty ? 2 : -1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_error(std::string_view message) {
    std::fflush(stdout);
    fmt::print(stderr, "mercuryctl: {}\n", message);
}

}  // namespace mercury::cli
