// SPDX-License-Identifier: MIT
#include "replay/network.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/process.hpp"

namespace mercury::replay {
namespace {

/// tbf must be able to send one whole GSO packet: 45 segments of 1448 bytes, 1514 on the wire.
constexpr std::uint64_t shaper_burst = switch_queue_bytes_min;

std::string port_link(std::size_t host) {
    return fmt::format("port{}", host);
}
std::string ip_of(std::size_t host) {
    return fmt::format("10.77.0.{}", host + 1);
}
/// Locally administered, so that neighbours can be known in advance.
std::string mac_of(std::size_t host) {
    return fmt::format("02:4d:00:00:00:{:02x}", host + 1);
}

Fd open_current_namespace() {
    return Fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

/// The line of a batch that PROGRAM complained about, "Command failed -:3" for the third.
std::string_view failed_line(const std::vector<std::string>& lines, std::string_view complaint) {
    constexpr std::string_view before = "Command failed -:";
    const auto at = complaint.find(before);
    if (at == std::string_view::npos)
        return {};
    std::size_t number = 0;
    std::from_chars(complaint.data() + at + before.size(), complaint.data() + complaint.size(),
                    number);
    return number >= 1 && number <= lines.size() ? std::string_view(lines[number - 1])
                                                 : std::string_view();
}

/// Runs the lines in PLACE as one batch of ip, tc or bridge: to start a program takes longer than
/// what it does. The first failure ends it.
Result<void> batch(const Namespace& place, const char* program,
                   const std::vector<std::string>& lines) {
    std::string input;
    for (const auto& line : lines)
        input += line + "\n";
    const auto done = place.run<std::string>([&] {
        return run_command({program, "-batch", "-"}, input);
    });
    if (done)
        return {};
    return Error{fmt::format("{} {}: {}", program, failed_line(lines, done.error().message),
                             done.error().message)};
}

/// Otherwise every interface would send router solicitations.
Result<void> switch_ipv6_off(const Namespace& place) {
    return place.run<void>([]() -> Result<void> {
        constexpr const char* path = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        const Fd file(open(path, O_WRONLY | O_CLOEXEC));
        if (!file && errno == ENOENT)
            return {};  // a kernel without IPv6
        if (!file || write(file.get(), "1", 1) != 1)
            return system_error(path);
        return {};
    });
}

std::string tbf(Rate rate, std::uint64_t limit) {
    return fmt::format("tbf rate {} burst {}b limit {}b", to_string(rate), shaper_burst, limit);
}

/// The tree below a host's shaper is the user's, so tbf's limit has no effect there.
std::string host_shaper(Rate rate) {
    return fmt::format("dev {} root handle 1: {}", host_link, tbf(rate, shaper_burst));
}

std::string port_parent(const NetworkSettings& settings) {
    return settings.delay.count() > 0 ? "parent 1:1" : "root";
}

std::string port_shaper(const NetworkSettings& settings, std::size_t host, Rate rate) {
    return fmt::format("dev {} {} handle 2: {}", port_link(host), port_parent(settings),
                       tbf(rate, settings.ports->queue_bytes()));
}

/// One filter for each class selector, all of one mask, so that flower needs one look-up. What none
/// of them matches has class selector 0.
void add_priority_queues(const SwitchSettings& ports, const std::string& dev,
                         std::vector<std::string>& lines) {
    const unsigned last = ports.queues - 1;
    std::string priomap;
    for (int priority = 0; priority < 16; ++priority)
        priomap += fmt::format(" {}", last);
    lines.push_back(fmt::format("qdisc add dev {} parent 2:1 handle 3: prio bands {} priomap{}",
                                dev, ports.queues, priomap));
    for (unsigned queue = 0; queue < ports.queues; ++queue) {
        lines.push_back(fmt::format("qdisc add dev {} parent 3:{:x} bfifo limit {}b", dev,
                                    queue + 1, ports.queue_bytes()));
    }
    for (unsigned selector = 1; selector < 8; ++selector) {
        lines.push_back(
            fmt::format("filter add dev {} parent 3: protocol ip prio 1 flower ip_tos {:#x}/0xe0 "
                        "classid 3:{:x}",
                        dev, selector << 5, switch_queue_of(selector << 3, ports.queues) + 1));
    }
}

/// The delay, then the queues: netem hands what is due to the qdisc below it.
std::vector<std::string> port_lines(const NetworkSettings& settings, std::size_t host) {
    const std::string dev = port_link(host);
    std::vector<std::string> lines;
    if (settings.delay.count() > 0) {
        lines.push_back(fmt::format("qdisc add dev {} root handle 1: netem delay {} limit 1000000",
                                    dev, time_to_string(settings.delay)));
    }
    if (settings.ports) {
        lines.push_back("qdisc add " + port_shaper(settings, host, settings.rate));
        if (settings.ports->queues > 1)
            add_priority_queues(*settings.ports, dev, lines);
    }
    return lines;
}

/// By device, of all root qdiscs: what a queue below it lost is counted there, too.
Result<nlohmann::json> root_qdiscs(const Namespace& place) {
    const auto text = place.run<std::string>([] {
        return run_command({"tc", "-s", "-j", "qdisc", "show"});
    });
    if (!text)
        return text.error();
    nlohmann::json roots = nlohmann::json::object();
    const auto all = nlohmann::json::parse(text.value(), nullptr, false);
    if (!all.is_array())
        return Error{fmt::format("tc shows something that is not JSON: {}", text.value())};
    for (const auto& qdisc : all) {
        if (qdisc.value("root", false))
            roots[qdisc.value("dev", "")] = qdisc;
    }
    return roots;
}

Result<std::uint64_t> drops_at(const nlohmann::json& roots, const std::string& device) {
    if (!roots.contains(device))
        return Error{fmt::format("tc shows no root qdisc at {}", device)};
    return roots[device].value("drops", std::uint64_t{0});
}

std::string_view first_word(std::string_view line) {
    return line.substr(0, line.find(' '));
}

/// tbf would set such a queue's limit to its own whenever the rate changes.
bool is_fifo(std::string_view kind) {
    return kind == "pfifo" || kind == "bfifo" || kind == "pfifo_head_drop";
}

Result<void> check_ports(const SwitchSettings& ports) {
    if (ports.queues < 1 || ports.queues > switch_queues_max) {
        return Error{fmt::format("a switch port has 1 to {} queues, not {}", switch_queues_max,
                                 ports.queues)};
    }
    if (ports.queue_bytes() < switch_queue_bytes_min) {
        return Error{fmt::format(
            "a switch buffer of {} bytes is too small: each of its {} queues may hold {} of them, "
            "and must hold a packet of {} bytes",
            ports.buffer, ports.queues, ports.queue_bytes(), switch_queue_bytes_min)};
    }
    return {};
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

unsigned switch_queue_of(unsigned dscp, unsigned queues) {
    return queues - 1 - std::min(dscp >> 3, queues - 1);
}

std::uint64_t Drops::total() const {
    return std::accumulate(hosts.begin(), hosts.end(), std::uint64_t{0}) +
           std::accumulate(ports.begin(), ports.end(), std::uint64_t{0});
}

Result<void> check(const NetworkSettings& settings) {
    if (settings.hosts < hosts_min || settings.hosts > hosts_max)
        return Error{fmt::format("a network has {} to {} hosts, not {}", hosts_min, hosts_max,
                                 settings.hosts)};
    if (settings.mtu < mtu_min || settings.mtu > mtu_max)
        return Error{
            fmt::format("an MTU is {} to {} bytes, not {}", mtu_min, mtu_max, settings.mtu)};
    if (settings.rate.bits_per_second == 0)
        return Error{"the rate of a link is above 0"};
    if (settings.qdisc.empty() || settings.qdisc.front().empty())
        return Error{"no qdisc is given for the hosts"};
    const auto& qdisc = settings.qdisc.front();
    if (is_fifo(first_word(qdisc)) && qdisc.find(" limit ") == std::string::npos)
        return Error{fmt::format("qdisc \"{}\" needs a limit, as in \"{} limit 1000\"", qdisc,
                                 first_word(qdisc))};
    return settings.ports ? check_ports(*settings.ports) : Result<void>{};
}

Result<Network> Network::build(const NetworkSettings& settings) {
    if (auto good = check(settings); !good)
        return good.error();
    auto middle = Namespace::create();
    if (!middle)
        return middle.error();
    std::vector<Namespace> hosts;
    for (std::size_t i = 0; i < settings.hosts; ++i) {
        auto host = Namespace::create();
        if (!host)
            return host.error();
        hosts.push_back(std::move(host).value());
    }

    Network network(settings, std::move(middle).value(), std::move(hosts));
    if (auto done = network.configure_switch(); !done)
        return done.error();
    for (std::size_t i = 0; i < settings.hosts; ++i) {
        if (auto done = network.configure_host(i); !done)
            return done.error();
    }
    return network;
}

Result<void> Network::configure_switch() const {
    if (auto off = switch_ipv6_off(middle_); !off)
        return off;
    std::vector<std::string> links{
        fmt::format("link add bridge mtu {} type bridge mcast_snooping 0", settings_.mtu),
        "link set bridge up"};
    std::vector<std::string> queues;
    std::vector<std::string> table;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
        if (auto off = switch_ipv6_off(hosts_[i]); !off)
            return off;
        links.push_back(fmt::format(
            "link add {} mtu {} type veth peer name {} address {} mtu {} netns {}", port_link(i),
            settings_.mtu, host_link, mac_of(i), settings_.mtu, hosts_[i].path()));
        links.push_back(fmt::format("link set {} master bridge up", port_link(i)));
        table.push_back(fmt::format("fdb add {} dev {} master static", mac_of(i), port_link(i)));
        table.push_back(fmt::format("link set dev {} learning off flood off", port_link(i)));
        const auto lines = port_lines(settings_, i);
        queues.insert(queues.end(), lines.begin(), lines.end());
    }
    if (auto done = batch(middle_, "ip", links); !done)
        return done;
    if (auto done = batch(middle_, "bridge", table); !done)
        return done;
    return queues.empty() ? Result<void>{} : batch(middle_, "tc", queues);
}

Result<void> Network::configure_host(std::size_t index) const {
    std::vector<std::string> links{"link set lo up",
                                   fmt::format("address add {}/24 dev {}", ip_of(index), host_link),
                                   fmt::format("link set {} up", host_link)};
    for (std::size_t other = 0; other < hosts_.size(); ++other) {
        if (other != index) {
            links.push_back(fmt::format("neigh add {} lladdr {} dev {}", ip_of(other),
                                        mac_of(other), host_link));
        }
    }
    if (auto done = batch(hosts_[index], "ip", links); !done)
        return done;

    std::vector<std::string> queues{"qdisc add " + host_shaper(settings_.rate),
                                    fmt::format("qdisc add dev {} parent 1:1 handle 10: {}",
                                                host_link, settings_.qdisc.front())};
    for (std::size_t i = 1; i < settings_.qdisc.size(); ++i) {
        const std::string_view line = settings_.qdisc[i];
        const auto object = first_word(line);
        queues.push_back(
            fmt::format("{} add dev {}{}", object, host_link, line.substr(object.size())));
    }
    return batch(hosts_[index], "tc", queues);
}

in_addr Network::address(std::size_t host) const {
    in_addr address{};
    inet_pton(AF_INET, ip_of(host).c_str(), &address);
    return address;
}

Result<void> Network::set_rate(std::size_t host, Rate rate) const {
    // tbf also sets the limit of a FIFO right below it.
    std::vector<std::string> lines{"qdisc change " + host_shaper(rate)};
    if (is_fifo(first_word(settings_.qdisc.front()))) {
        lines.push_back(fmt::format("qdisc change dev {} parent 1:1 handle 10: {}", host_link,
                                    settings_.qdisc.front()));
    }
    if (auto done = batch(hosts_[host], "tc", lines); !done)
        return done;
    if (!settings_.ports)
        return {};
    return batch(middle_, "tc", {"qdisc change " + port_shaper(settings_, host, rate)});
}

Result<Drops> Network::drops() const {
    const auto ports = root_qdiscs(middle_);
    if (!ports)
        return ports.error();
    Drops drops;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
        const auto own = root_qdiscs(hosts_[i]);
        if (!own)
            return own.error();
        const auto at_host = drops_at(own.value(), host_link);
        if (!at_host)
            return at_host.error();
        drops.hosts.push_back(at_host.value());
        // A port that is never short of anything and adds no delay has no queue.
        if (!settings_.ports && settings_.delay.count() == 0) {
            drops.ports.push_back(0);
            continue;
        }
        const auto at_port = drops_at(ports.value(), port_link(i));
        if (!at_port)
            return at_port.error();
        drops.ports.push_back(at_port.value());
    }
    return drops;
}

Result<Connection> connect_hosts(const Network& network, std::size_t from, std::size_t to,
                                 Endpoint endpoint) {
    endpoint.address.sin_family = AF_INET;
    endpoint.address.sin_addr = network.address(to);
    const auto listener = network.host(to).run<Fd>([&] { return listen_at(endpoint); });
    if (!listener)
        return listener.error();
    auto connected = network.host(from).run<Fd>([&] { return connect_to(endpoint); });
    if (!connected)
        return connected.error();
    auto accepted = accept_from(listener.value(), endpoint);
    if (!accepted)
        return accepted.error();
    return Connection{std::move(connected).value(), std::move(accepted).value()};
}

}  // namespace mercury::replay
