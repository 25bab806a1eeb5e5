// SPDX-License-Identifier: MIT
//
// What mercury-server is told on its command line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/result.hpp"
#include "transport/address.hpp"
#include "transport/server.hpp"

namespace mercury::transport {

/// Text as it was given.
struct ServerArguments {
    std::string listen = "127.0.0.1:7700";
    std::optional<unsigned> threads;
    std::string token_file;
    bool no_token = false;

    std::size_t jobs = ServerLimits{}.jobs;
    std::size_t workers = ServerLimits{}.workers;
    std::size_t tensors = ServerLimits{}.tensors;
    std::size_t connections = ServerLimits{}.connections;
    std::optional<std::string> memory;  // of the process

    std::optional<std::string> in_flight;  // of the host
    std::optional<std::string> switch_buffer;
    std::string rate;
    std::string rtt;

    std::string silence = "10s";
    std::string join_time = "60s";
    std::string stall = "300s";
    bool no_marks = false;
    std::string hints;
};

struct ServerSettings {
    std::vector<Address> addresses;  // one for each server
    ServerOptions each;
};

/// Or what is wrong with them, and what is allowed.
Result<ServerSettings> settings_of(const ServerArguments& arguments);

/// What is in the file at PATH, without the newline at its end: 1 to 1024 bytes that nobody but its
/// owner and group may read or change.
Result<std::string> read_token(const std::string& path);

}  // namespace mercury::transport
