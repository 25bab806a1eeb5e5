// SPDX-License-Identifier: MIT
#include "replay/counters.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace mercury::replay {
namespace {

std::vector<std::string> words_of(std::string_view line) {
    std::istringstream stream{std::string(line)};
    return {std::istream_iterator<std::string>(stream), {}};
}

Result<std::uint64_t> number(const std::string& word, std::string_view what) {
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (failure != std::errc{} || end != word.data() + word.size())
        return Error{fmt::format("{} is \"{}\", not a number", what, word)};
    return value;
}

Result<std::string> content_of(const char* path) {
    std::ifstream file(path);
    std::string content{std::istreambuf_iterator<char>(file), {}};
    if (!file)
        return system_error(path);
    return content;
}

}  // namespace

Result<std::uint64_t> proc_net_value(std::string_view text, std::string_view group,
                                     std::string_view name) {
    const std::string label = fmt::format("{}:", group);
    std::vector<std::string> names;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const auto words = words_of(line);
        if (words.empty() || words[0] != label)
            continue;
        if (names.empty()) {
            names = words;
            continue;
        }
        const auto found = std::find(names.begin(), names.end(), name);
        const auto column = static_cast<std::size_t>(found - names.begin());
        if (found != names.end() && column < words.size())
            return number(words[column], name);
    }
    return Error{fmt::format("the kernel does not count {} {}", group, name)};
}

Result<TcpCounters> tcp_counters(const Namespace& place) {
    return place.run<TcpCounters>([]() -> Result<TcpCounters> {
        const auto snmp = content_of("/proc/thread-self/net/snmp");
        if (!snmp)
            return snmp.error();
        const auto netstat = content_of("/proc/thread-self/net/netstat");
        if (!netstat)
            return netstat.error();
        const auto retransmits = proc_net_value(snmp.value(), "Tcp", "RetransSegs");
        if (!retransmits)
            return retransmits.error();
        const auto timeouts = proc_net_value(netstat.value(), "TcpExt", "TCPTimeouts");
        if (!timeouts)
            return timeouts.error();
        return TcpCounters{retransmits.value(), timeouts.value()};
    });
}

Result<LinkBytes> parse_link_bytes(std::string_view text) {
    // "  eth0: RECEIVED packets errs drop fifo frame compressed multicast SENT ..."
    constexpr std::size_t received_column = 1;
    constexpr std::size_t sent_column = 9;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::replace(line.begin(), line.end(), ':', ' ');
        const auto words = words_of(line);
        if (words.size() <= sent_column || words[0] != host_link)
            continue;
        const auto received = number(words[received_column], "received bytes");
        if (!received)
            return received.error();
        const auto sent = number(words[sent_column], "sent bytes");
        if (!sent)
            return sent.error();
        return LinkBytes{sent.value(), received.value()};
    }
    return Error{fmt::format("/proc/net/dev does not have {}", host_link)};
}

Result<LinkMeter> LinkMeter::open(const Namespace& host) {
    return host.run<LinkMeter>([]() -> Result<LinkMeter> {
        constexpr const char* path = "/proc/thread-self/net/dev";
        Fd file(::open(path, O_RDONLY | O_CLOEXEC));
        if (!file)
            return system_error(path);
        return LinkMeter(std::move(file));
    });
}

Result<LinkBytes> LinkMeter::read() const {
    std::array<char, 4096> buffer{};
    const ssize_t got = pread(file_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0)
        return system_error("/proc/net/dev");
    return parse_link_bytes({buffer.data(), static_cast<std::size_t>(got)});
}

}  // namespace mercury::replay
