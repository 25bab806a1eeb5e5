// SPDX-License-Identifier: MIT
#include "replay/network.hpp"

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "replay/process.hpp"

namespace mercury::replay {
namespace {

constexpr const char* worker_ip = "10.77.0.1";
constexpr const char* server_ip = "10.77.0.2";
constexpr const char* host_link = "eth0";                               // in a host
constexpr std::array<const char*, 2> switch_ports{"worker", "server"};  // in the switch

/// tbf must be able to send one whole GSO packet: 45 segments of 1448 bytes, 1514 on the wire.
constexpr unsigned shaper_burst = 72 * 1024;

Fd open_current_namespace() {
    return Fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    return words;
}

/// Runs the commands one after the other in PLACE; the first failure ends it.
Result<void> configure(const Namespace& place, std::initializer_list<std::string> commands) {
    return place.run<void>([&]() -> Result<void> {
        for (const auto& command : commands) {
            if (const auto done = run_command(words_of(command)); !done)
                return done.error();
        }
        return {};
    });
}

Result<void> configure_host(const Namespace& host, const char* ip,
                            const NetworkSettings& settings) {
    return configure(
        host,
        {
            fmt::format("ip address add {}/24 dev {}", ip, host_link),
            fmt::format("ip link set {} up", host_link),
            // limit is about the queue that tbf brings along, which is replaced next.
            fmt::format("tc qdisc add dev {} root handle 1: tbf rate {} burst {}b limit {}b",
                        host_link, to_string(settings.rate), shaper_burst, shaper_burst),
            fmt::format("tc qdisc add dev {} parent 1:1 handle 10: {}", host_link, settings.qdisc),
        });
}

Result<std::uint64_t> root_drops(const Namespace& place, const char* device) {
    const auto text = place.run<std::string>([&] {
        return run_command({"tc", "-s", "-j", "qdisc", "show", "dev", device});
    });
    if (!text)
        return text.error();
    const auto json = nlohmann::json::parse(text.value(), nullptr, false);
    if (json.is_array()) {
        for (const auto& qdisc : json) {
            if (qdisc.value("root", false))
                return qdisc.value("drops", std::uint64_t{0});
        }
    }
    return Error{fmt::format("tc shows no root qdisc at {}: {}", device, text.value())};
}

}  // namespace

Result<Namespace> Namespace::create() {
    const Fd home = open_current_namespace();
    if (!home)
        return system_error("/proc/thread-self/ns/net");
    if (unshare(CLONE_NEWNET) != 0)
        return system_error("cannot make a network namespace (this needs root)");
    Fd created = open_current_namespace();
    if (setns(home.get(), CLONE_NEWNET) != 0)
        return system_error("cannot leave the new network namespace");
    if (!created)
        return system_error("/proc/thread-self/ns/net");
    return Namespace(std::move(created));
}

std::string Namespace::path() const {
    return fmt::format("/proc/{}/fd/{}", getpid(), fd_.get());
}

Namespace::Inside::Inside(const Namespace& target) : home_(open_current_namespace()) {
    if (!home_)
        entered_ = system_error("/proc/thread-self/ns/net");
    else if (setns(target.fd_.get(), CLONE_NEWNET) != 0)
        entered_ = system_error("cannot enter a network namespace");
}

Namespace::Inside::~Inside() {
    // To go on in the wrong namespace could change someone else's network.
    if (entered_ && setns(home_.get(), CLONE_NEWNET) != 0) {
        std::perror("replay: cannot return to its own network namespace");
        std::abort();
    }
}

Result<Network> Network::build(const NetworkSettings& settings) {
    auto worker = Namespace::create();
    if (!worker)
        return worker.error();
    auto server = Namespace::create();
    if (!server)
        return server.error();
    auto middle = Namespace::create();
    if (!middle)
        return middle.error();
    Network network(std::move(worker).value(), std::move(server).value(),
                    std::move(middle).value());

    if (auto done =
            configure(network.middle_, {"ip link add bridge type bridge", "ip link set bridge up"});
        !done)
        return done.error();
    for (const auto& [port, host] :
         {std::pair{switch_ports[0], &network.worker_}, {switch_ports[1], &network.server_}}) {
        const auto done =
            configure(network.middle_,
                      {
                          fmt::format("ip link add {} type veth peer name {} netns {}", port,
                                      host_link, host->path()),
                          fmt::format("ip link set {} master bridge up", port),
                          fmt::format("tc qdisc add dev {} root netem delay {} limit 1000000", port,
                                      time_to_string(settings.delay)),
                      });
        if (!done)
            return done.error();
    }
    if (auto done = configure_host(network.worker_, worker_ip, settings); !done)
        return done.error();
    if (auto done = configure_host(network.server_, server_ip, settings); !done)
        return done.error();
    return network;
}

sockaddr_in Network::server_address() const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, server_ip, &address.sin_addr);
    return address;
}

Result<std::uint64_t> Network::drops() const {
    std::uint64_t sum = 0;
    for (const auto& [place, device] : {std::pair{&worker_, host_link},
                                        {&server_, host_link},
                                        {&middle_, switch_ports[0]},
                                        {&middle_, switch_ports[1]}}) {
        const auto drops = root_drops(*place, device);
        if (!drops)
            return drops.error();
        sum += drops.value();
    }
    return sum;
}

}  // namespace mercury::replay
