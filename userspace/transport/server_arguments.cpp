// SPDX-License-Identifier: MIT
#include "transport/server_arguments.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/fd.hpp"
#include "common/units.hpp"
#include "transport/in_flight.hpp"

namespace mercury::transport {
namespace {

constexpr std::size_t token_bytes_max = 1024;

Result<std::size_t> number_of_servers(const ServerArguments& arguments, std::size_t ports) {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    const std::size_t wanted = arguments.threads.value_or(static_cast<unsigned>(ports));
    if (wanted == 0)
        return Error{"--threads must be at least 1"};
    if (ports > 1 && wanted != ports) {
        return Error{fmt::format("--listen {} names {} ports, but --threads is {}",
                                 arguments.listen, ports, wanted)};
    }
    if (wanted > cores) {
        return Error{
            fmt::format("{} servers were asked for, and there {} {} core{}: one for each "
                        "at most",
                        wanted, cores == 1 ? "is" : "are", cores, cores == 1 ? "" : "s")};
    }
    return wanted;
}

Result<std::vector<Address>> addresses_of(const ServerArguments& arguments) {
    auto named = Address::parse(arguments.listen);
    if (!named)
        return Error{"--listen: " + named.error().message};
    const auto servers = number_of_servers(arguments, named.value().size());
    if (!servers)
        return servers.error();
    if (servers.value() == named.value().size())
        return named;

    const std::size_t colon = arguments.listen.rfind(':');
    const unsigned long first = std::stoul(arguments.listen.substr(colon + 1));
    if (first == 0)  // any free port for each
        return std::vector(servers.value(), named.value().front());
    const unsigned long last = first + servers.value() - 1;
    if (last > 65535)
        return Error{
            fmt::format("--listen: {} ports from {} on go beyond 65535", servers.value(), first)};
    return Address::parse(fmt::format("{}-{}", arguments.listen, last));
}

Result<std::string> token_of(const ServerArguments& arguments,
                             const std::vector<Address>& addresses) {
    if (!arguments.token_file.empty())
        return read_token(arguments.token_file);
    const bool all_on_loopback = std::all_of(addresses.begin(), addresses.end(),
                                             [](const Address& a) { return a.is_loopback(); });
    if (all_on_loopback || arguments.no_token)
        return std::string{};
    return Error{
        fmt::format("everybody could join at {}, which is not a loopback address: give "
                    "--token-file, or --no-token if that is what you want",
                    arguments.listen)};
}

/// Bytes that may be underway to this host.
Result<std::size_t> in_flight_of(const ServerArguments& arguments) {
    if (arguments.in_flight) {
        const auto bytes = parse_bytes(*arguments.in_flight);
        return bytes ? Result<std::size_t>{bytes.value()}
                     : Error{"--in-flight: " + bytes.error().message};
    }
    if (!arguments.switch_buffer)
        return ServerOptions{}.in_flight;
    const auto buffer = parse_bytes(*arguments.switch_buffer);
    if (!buffer)
        return Error{"--switch-buffer: " + buffer.error().message};
    const auto rate = parse_rate(arguments.rate);
    if (!rate)
        return Error{"--rate: " + rate.error().message};
    const auto rtt = parse_time(arguments.rtt);
    if (!rtt)
        return Error{"--rtt: " + rtt.error().message};
    return in_flight_for(buffer.value(), rate.value().bits_per_second, rtt.value());
}

/// Bytes for all sums of the process.
Result<std::uint64_t> memory_of(const ServerArguments& arguments) {
    if (!arguments.memory) {
        const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
        return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
    }
    const auto bytes = parse_bytes(*arguments.memory);
    if (!bytes)
        return Error{"--max-memory: " + bytes.error().message};
    if (bytes.value() == 0)
        return Error{"--max-memory must be more than 0"};
    return bytes;
}

Result<std::chrono::milliseconds> time_of(const char* option, const std::string& text) {
    const auto time = parse_time(text);
    if (!time)
        return Error{fmt::format("{}: {}", option, time.error().message)};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.value());
    if (ms.count() == 0) {
        return Error{fmt::format("{} must be 1ms to 3600s, with its unit, and is {}", option,
                                 time_to_string(time.value()))};
    }
    return ms;
}

Result<void> set_times(const ServerArguments& arguments, ServerOptions& options) {
    const auto set = [](const char* option, const std::string& text,
                        std::chrono::milliseconds& to) -> Result<void> {
        const auto time = time_of(option, text);
        if (!time)
            return time.error();
        to = time.value();
        return {};
    };
    if (auto done = set("--silence", arguments.silence, options.silence); !done)
        return done;
    if (auto done = set("--join-time", arguments.join_time, options.join_time); !done)
        return done;
    return set("--stall", arguments.stall, options.stall);
}

}  // namespace

Result<std::string> read_token(const std::string& path) {
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!file || fstat(file.get(), &status) != 0)
        return system_error("--token-file " + path);
    if ((status.st_mode & S_IRWXO) != 0) {
        return Error{
            fmt::format("--token-file {}: everybody has access to it (mode {:o}); "
                        "chmod o= {}",
                        path, status.st_mode & 07777, path)};
    }
    std::array<char, token_bytes_max + 2> bytes{};
    std::size_t size = 0;
    while (size < bytes.size()) {
        const ssize_t got = read(file.get(), bytes.data() + size, bytes.size() - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return system_error("--token-file " + path);
        if (got == 0)
            break;
        size += static_cast<std::size_t>(got);
    }
    std::string_view token(bytes.data(), size);
    if (token.ends_with('\n'))
        token.remove_suffix(1);
    if (token.empty() || token.size() > token_bytes_max) {
        return Error{
            fmt::format("--token-file {}: a token has 1 to {} bytes", path, token_bytes_max)};
    }
    return std::string(token);
}

Result<ServerSettings> settings_of(const ServerArguments& arguments) {
    auto addresses = addresses_of(arguments);
    if (!addresses)
        return addresses.error();
    const std::size_t servers = addresses.value().size();

    ServerOptions options;
    auto token = token_of(arguments, addresses.value());
    if (!token)
        return token.error();
    options.token = std::move(token).value();
    const auto memory = memory_of(arguments);
    if (!memory)
        return memory.error();
    options.limits.memory = memory.value() / servers;
    const auto in_flight = in_flight_of(arguments);
    if (!in_flight)
        return in_flight.error();
    // 0 would mean that there is no bound.
    options.in_flight =
        in_flight.value() == 0 ? 0 : std::max(in_flight.value() / servers, std::size_t{1});
    if (auto set = set_times(arguments, options); !set)
        return set.error();
    options.limits.jobs = arguments.jobs;
    options.limits.workers = arguments.workers;
    options.limits.tensors = arguments.tensors;
    options.limits.connections = arguments.connections;
    options.marks = !arguments.no_marks;
    options.hints = arguments.hints;
    return ServerSettings{std::move(addresses).value(), std::move(options)};
}

}  // namespace mercury::transport
