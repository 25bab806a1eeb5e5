// SPDX-License-Identifier: MIT
#include "replay/strategy_connect.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include <arpa/inet.h>
#include <mercury.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "common/units.hpp"

namespace mercury::replay {
namespace {

constexpr std::uint64_t window_min = 4096;
constexpr std::uint64_t window_max = std::uint64_t{1} << 22;  // what the guest allows: rmem_max
constexpr std::size_t ports_max = 1000;                       // of a job, see Job

/// DSCP class selectors, most urgent first.
constexpr unsigned class_selector(unsigned rank) {
    constexpr unsigned most_urgent = 7;
    constexpr unsigned above_best_effort = 1;
    return std::max(most_urgent - std::min(rank, most_urgent), above_best_effort) << 3;
}

std::uint32_t mark_of(unsigned job, unsigned band) {
    return job << std::countr_zero(MERCURY_JOB_MASK_DEFAULT) | ((band + 1) & MERCURY_MASK_DEFAULT);
}

void mark(Endpoint& endpoint, Marking marking, unsigned job) {
    if (marking == Marking::none)
        return;
    const bool ranked = marking == Marking::job_rank;
    endpoint.mark = ranked ? mark_of(0, job) : mark_of(job, 0);
    endpoint.dscp = class_selector(ranked ? job : 0);
}

/// Closing a connection in the middle of a transfer ends it there and then: nothing goes on in the
/// network when an exchange is over.
Result<void> drop_on_close(const Fd& socket) {
    const linger at_once{1, 0};
    if (setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) != 0)
        return system_error("SO_LINGER");
    return {};
}

Result<void> prepare(const Connection& connection) {
    for (const Fd* end : {&connection.from, &connection.to}) {
        if (auto set = drop_on_close(*end); !set)
            return set;
    }
    return {};
}

}  // namespace

Connector in_network(const Network& network) {
    return [&network](std::size_t from, std::size_t to, const Endpoint& endpoint) {
        return connect_hosts(network, from, to, endpoint);
    };
}

Connector over_loopback() {
    return
        [](std::size_t /*from*/, std::size_t /*to*/, const Endpoint& wanted) -> Result<Connection> {
            Endpoint endpoint = wanted;
            endpoint.address.sin_family = AF_INET;
            endpoint.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            endpoint.address.sin_port = 0;
            const auto listener = listen_at(endpoint);
            if (!listener)
                return listener.error();
            const auto port = port_of(listener.value());
            if (!port)
                return port.error();
            endpoint.address.sin_port = htons(port.value());
            auto connected = connect_to(endpoint);
            if (!connected)
                return connected.error();
            auto accepted = accept_from(listener.value(), endpoint);
            if (!accepted)
                return accepted.error();
            return Connection{std::move(connected).value(), std::move(accepted).value()};
        };
}

LinkOptions read_link_options(ParameterReader& reader, Marking marking) {
    LinkOptions options;
    options.window = reader.bytes("window", 0, window_min, window_max);
    options.marking = marking;
    if (marking == Marking::none && reader.yes_no("mark", false))
        options.marking = Marking::job;
    return options;
}

Linker::Linker(const Job& job, const Connector& connector, const LinkOptions& options)
    : job_(job), connector_(connector), options_(options) {
    endpoint_.window = options.window;
    mark(endpoint_, options.marking, job.number);
}

Result<Connection> Linker::link(std::size_t from, std::size_t to, bool late) {
    const std::size_t port = job_.first_port + links_;
    if (++links_ > ports_max || port > std::numeric_limits<in_port_t>::max())
        return Error{fmt::format("job {} needs more than the {} ports from {} on", job_.name,
                                 ports_max, job_.first_port)};
    endpoint_.address.sin_port = htons(static_cast<in_port_t>(port));
    endpoint_.late_binding = late;
    auto connection = connector_(from, to, endpoint_);
    if (!connection)
        return connection.error();
    if (auto prepared = prepare(connection.value()); !prepared)
        return prepared.error();
    return connection;
}

}  // namespace mercury::replay
