// SPDX-License-Identifier: MIT
#include "cli/doctor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "cli/rows.hpp"
#include "cli/text.hpp"
#include "common/logging.hpp"
#include "common/units.hpp"

namespace mercury::cli {
namespace {

using netlink::Qdisc;

/// Late binding: what a socket has not sent beyond this stays in the program.
constexpr std::uint64_t notsent_wanted = 128 << 10;
constexpr std::uint64_t notsent_max = 1 << 20;
/// The kernel's own default is 1 MiB or more.
constexpr std::uint64_t limit_output_min = 256 << 10;
constexpr std::uint64_t limit_output_wanted = 1 << 20;
constexpr std::uint64_t gso_bytes = 64 << 10;
constexpr std::pair release_min{6U, 1U};

/// Drivers of machines whose provider shapes what they send, behind the NIC.
constexpr std::array<std::string_view, 9> virtual_drivers{
    "virtio_net", "ena", "gve", "hv_netvsc", "vmxnet3", "xen_netfront", "vif", "ixgbevf", "iavf"};

class Examination {
  public:
    void good(std::string_view check, std::string what, const std::string& device = "") {
        findings_.push_back({true, std::string(check), device, std::move(what), "", ""});
    }
    void wrong(std::string_view check, std::string what, std::string why, std::string mend,
               const std::string& device = "") {
        findings_.push_back(
            {false, std::string(check), device, std::move(what), std::move(why), std::move(mend)});
    }
    std::vector<Finding> findings() && { return std::move(findings_); }

  private:
    std::vector<Finding> findings_;
};

// The machine ------------------------------------------------------------------------------------

void check_kernel(const Facts& facts, Examination& result) {
    std::pair<unsigned, unsigned> version;
    const char* const end = facts.release.data() + facts.release.size();
    const auto [dot, _] = std::from_chars(facts.release.data(), end, version.first);
    if (dot != end)
        std::from_chars(dot + 1, end, version.second);
    if (version >= release_min) {
        result.good("kernel", fmt::format("Linux {}", facts.release));
        return;
    }
    result.wrong("kernel", fmt::format("Linux {} is older than 6.1", facts.release),
                 "sch_mercury is built and tested for 6.1 and newer ones",
                 "apt install linux-image-amd64 linux-headers-amd64");
}

void check_module(const Facts& facts, Examination& result) {
    if (facts.module_loaded)
        result.good("module", "sch_mercury is loaded");
    else if (facts.module_loadable)
        result.good("module", "sch_mercury is installed; the first qdisc loads it");
    else
        result.wrong("module", fmt::format("sch_mercury is not there for Linux {}", facts.release),
                     "without it there is no mercury qdisc",
                     "make install    (in Mercury's source; or: make install-dkms)");
}

void check_plugin(const Facts& facts, Examination& result) {
    switch (facts.plugin) {
        case Plugin::Found:
            result.good("plugin", "tc knows mercury");
            return;
        case Plugin::Missing:
            result.wrong("plugin", "tc does not know mercury",
                         "mercuryctl does without, but tc can neither set nor show a mercury qdisc",
                         "make install    (in Mercury's source)");
            return;
        case Plugin::NoTc:
            result.wrong("plugin", "there is no tc",
                         "mercuryctl does without, but what it says to mend things uses tc",
                         "apt install iproute2");
    }
}

struct Sysctl {
    std::string_view check;
    std::string_view name;  // in net.ipv4
    std::string_view why;   // it has to be otherwise
    std::uint64_t wanted;
};

void check_sysctl(const Sysctl& sysctl, std::optional<std::uint64_t> value, bool good,
                  Examination& result) {
    if (!value)
        return;
    std::string what = fmt::format("net.ipv4.{} is {}", sysctl.name, *value);
    if (good)
        result.good(sysctl.check, std::move(what));
    else
        result.wrong(sysctl.check, std::move(what), std::string(sysctl.why),
                     fmt::format("sysctl -w net.ipv4.{}={}", sysctl.name, sysctl.wanted));
}

void check_sockets(const Facts& facts, Examination& result) {
    check_sysctl({"notsent_lowat", "tcp_notsent_lowat",
                  "what waits in a socket's buffer cannot be overtaken: programs that do not set "
                  "TCP_NOTSENT_LOWAT themselves bind too early",
                  notsent_wanted},
                 facts.notsent_lowat, facts.notsent_lowat <= notsent_max, result);
    check_sysctl(
        {"limit_output", "tcp_limit_output_bytes",
         "a connection may have so little in the qdisc that there is nothing to order, and "
         "it cannot fill a fast link",
         limit_output_wanted},
        facts.limit_output, facts.limit_output >= limit_output_min, result);
}

// Devices ----------------------------------------------------------------------------------------

bool is_virtual(const Nic& nic) {
    return std::ranges::find(virtual_drivers, nic.driver) != virtual_drivers.end();
}

/// A little below the link's rate, so that the queue forms in the qdisc.
std::string rate_wanted(const Nic& nic) {
    return nic.speed ? fmt::format("{}mbit", *nic.speed * 97 / 100) : "RATE";
}

std::string where(const Qdisc& qdisc) {
    return qdisc.parent == netlink::root ? "root"
                                         : fmt::format("parent {}", to_string(qdisc.parent));
}

std::string change_command(const Nic& nic, const Qdisc& qdisc, const std::string& options) {
    return fmt::format("tc qdisc change dev {} {} mercury {}", printable(nic.state.link.name),
                       where(qdisc), options);
}

void check_rate(const Nic& nic, const Qdisc& qdisc, Examination& result) {
    const std::string& name = nic.state.link.name;
    const std::uint64_t rate = qdisc.options->rate.value_or(0);  // bytes a second
    const std::uint64_t speed = nic.speed.value_or(0) * 125'000;
    if (rate == 0 && (nic.driver.empty() || is_virtual(nic))) {
        result.wrong(
            "rate",
            fmt::format("{} shapes to no rate, and {}", name,
                        nic.driver.empty() ? "is no hardware"
                                           : fmt::format("is a virtual NIC ({})", nic.driver)),
            "nothing queues here, but behind it, where nothing can be reordered: set a rate "
            "just below what the next link, or the provider, lets through",
            change_command(nic, qdisc, fmt::format("rate {}", rate_wanted(nic))), name);
    } else if (speed != 0 && rate >= speed) {
        result.wrong("rate",
                     fmt::format("{} shapes to {}, which its link of {} Mbit/s does not reach",
                                 name, to_string(Rate{rate * 8}), *nic.speed),
                     "the queue forms in the NIC, where nothing can be reordered",
                     change_command(nic, qdisc, fmt::format("rate {}", rate_wanted(nic))), name);
    } else {
        result.good("rate", fmt::format("{} shapes to {}", name, limit_text(qdisc)), name);
    }
}

/// A packet that is being sent cannot be overtaken, and with GSO one may have 64 KiB.
void check_gso(const Nic& nic, const Qdisc& qdisc, Examination& result) {
    const std::string& name = nic.state.link.name;
    const std::uint64_t shaped = qdisc.options->rate.value_or(0);
    const std::uint64_t rate = shaped != 0 ? shaped : nic.speed.value_or(0) * 125'000;
    const auto split = qdisc.options->split_gso.value_or(MERCURY_SPLIT_AUTO);
    const bool is_split = split == MERCURY_SPLIT_ON || (split == MERCURY_SPLIT_AUTO &&
                                                        shaped != 0 && shaped < MERCURY_SPLIT_RATE);
    if (!nic.gso || is_split || rate == 0 || rate >= MERCURY_SPLIT_RATE) {
        result.good("gso", fmt::format("{}: GSO packets suit the rate", name), name);
        return;
    }
    const netlink::Time lasts{gso_bytes * 1'000'000'000 / rate};
    result.wrong(
        "gso",
        fmt::format("{} sends GSO packets whole, and one lasts up to {}", name, time_text(lasts)),
        "a packet that is being sent cannot be overtaken", change_command(nic, qdisc, "split_gso"),
        name);
}

/// Below mq each queue has a qdisc of its own: an order for some of them only is none.
void check_queues(const Nic& nic, Examination& result) {
    const DeviceState& state = nic.state;
    const auto mq = std::ranges::find_if(state.qdiscs, [](const Qdisc& qdisc) {
        return qdisc.parent == netlink::root && qdisc.kind == "mq";
    });
    if (mq == state.qdiscs.end() || mq->handle == netlink::Handle{})
        return;
    std::string commands;
    std::size_t without = 0;
    for (std::uint32_t queue = 1; queue <= nic.queues; ++queue) {
        const netlink::Handle parent = mq->handle.child(queue);
        const bool has = std::ranges::any_of(
            state.mercury, [&](const QdiscState& one) { return one.qdisc.parent == parent; });
        if (has)
            continue;
        ++without;
        commands +=
            fmt::format("{}tc qdisc replace dev {} parent {} mercury", commands.empty() ? "" : "; ",
                        printable(state.link.name), to_string(parent));
    }
    const std::string& name = state.link.name;
    if (without == 0)
        result.good("queues",
                    fmt::format("{} has mercury below each of its {} queues", name, nic.queues),
                    name);
    else
        result.wrong("queues",
                     fmt::format("{} of {} queues of {} have no mercury below mq", without,
                                 nic.queues, name),
                     "packets go to any of the queues, and are not ordered in these", commands,
                     name);
}

void check_link(const Nic& nic, Examination& result) {
    const std::string& name = nic.state.link.name;
    if (nic.state.link.up)
        return;
    result.wrong("up", fmt::format("{} is down", name), "it sends nothing",
                 fmt::format("ip link set {} up", printable(name)), name);
}

void check_devices(const Facts& facts, Examination& result) {
    const auto carries = [](const Nic& nic) { return !nic.state.mercury.empty(); };
    if (std::ranges::none_of(facts.nics, carries)) {
        // The best guess at which one is meant.
        auto nic = std::ranges::find_if(
            facts.nics, [](const Nic& one) { return one.state.link.up && !one.driver.empty(); });
        if (nic == facts.nics.end())
            nic =
                std::ranges::find_if(facts.nics, [](const Nic& one) { return one.state.link.up; });
        const bool any = nic != facts.nics.end();
        result.wrong("device", "no device has a mercury qdisc", "nothing is ordered",
                     fmt::format("tc qdisc replace dev {} root handle 1: mercury rate {}",
                                 any ? printable(nic->state.link.name) : "DEV",
                                 any ? rate_wanted(*nic) : "RATE"));
        return;
    }
    for (const Nic& nic : facts.nics) {
        const std::string& name = nic.state.link.name;
        if (!carries(nic)) {
            if (!nic.driver.empty())
                result.good("device", fmt::format("{} has no mercury qdisc", name), name);
            continue;
        }
        result.good("device", fmt::format("{} has a mercury qdisc", name), name);
        check_link(nic, result);
        check_queues(nic, result);
        for (const QdiscState& state : nic.state.mercury) {
            if (!state.qdisc.options)
                continue;
            check_rate(nic, state.qdisc, result);
            check_gso(nic, state.qdisc, result);
        }
    }
}

}  // namespace

std::vector<Finding> diagnose(const Facts& facts) {
    Examination result;
    check_kernel(facts, result);
    check_module(facts, result);
    check_plugin(facts, result);
    check_sockets(facts, result);
    check_devices(facts, result);
    return std::move(result).findings();
}

std::string doctor_text(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& finding : findings) {
        text += fmt::format("{}  {}\n", finding.good ? "ok   " : "wrong", printable(finding.what));
        if (!finding.good)
            text += fmt::format("       why:  {}\n       mend: {}\n", finding.why, finding.mend);
    }
    const auto wrong = std::ranges::count(findings, false, &Finding::good);
    return text + (wrong == 0 ? "all is well\n"
                              : fmt::format("{} thing{} to mend\n", wrong, wrong == 1 ? "" : "s"));
}

Json doctor_json(const std::vector<Finding>& findings) {
    Json json;
    json["good"] = std::ranges::all_of(findings, &Finding::good);
    json["findings"] = Json::array();
    for (const Finding& finding : findings) {
        Json one;
        one["check"] = finding.check;
        one["good"] = finding.good;
        one["dev"] = finding.device.empty() ? Json(nullptr) : Json(finding.device);
        one["what"] = finding.what;
        if (!finding.good) {
            one["why"] = finding.why;
            one["mend"] = finding.mend;
        }
        json["findings"].push_back(std::move(one));
    }
    return json;
}

}  // namespace mercury::cli
