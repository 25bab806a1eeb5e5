// SPDX-License-Identifier: MIT
//
// Where doctor finds its facts: /proc, /sys, ethtool's ioctl, modprobe and tc.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include "cli/doctor.hpp"
#include "common/fd.hpp"
#include "common/process.hpp"

namespace mercury::cli {
namespace {

namespace fs = std::filesystem;

/// The whole number in a file; nothing, if there is none, or it is negative.
std::optional<std::uint64_t> number_in(const fs::path& path) {
    std::ifstream file(path);
    std::string text;
    std::uint64_t number = 0;
    file >> text;
    const auto [_, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure != std::errc{})
        return {};
    return number;
}

std::string driver_of(const fs::path& device) {
    std::error_code none;
    return fs::read_symlink(device / "device/driver", none).filename().string();
}

std::size_t queues_of(const fs::path& device) {
    std::error_code none;
    const auto queues = std::ranges::count_if(
        fs::directory_iterator(device / "queues", none), [](const fs::directory_entry& entry) {
            return entry.path().filename().string().starts_with("tx-");
        });
    return static_cast<std::size_t>(queues);
}

bool has_gso(const std::string& name) {
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ethtool_value value{};
    value.cmd = ETHTOOL_GGSO;
    ifreq request{};
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    return ioctl(socket.get(), SIOCETHTOOL, &request) == 0 && value.data != 0;
}

Nic nic_of(const DeviceState& state) {
    const fs::path device = fs::path("/sys/class/net") / state.link.name;
    Nic nic;
    nic.state = state;
    nic.driver = driver_of(device);
    nic.speed = number_in(device / "speed");
    if (nic.speed == std::uint64_t{0})
        nic.speed.reset();
    nic.queues = queues_of(device);
    nic.gso = has_gso(state.link.name);
    return nic;
}

/// tc asks its plugins for help without asking the kernel for anything.
Plugin find_plugin() {
    if (!run_command({"tc", "-V"}))
        return Plugin::NoTc;
    const auto help = run_command({"tc", "qdisc", "add", "dev", "lo", "root", "mercury", "help"});
    const std::string& said = help ? help.value() : help.error().message;
    return said.find("Unknown qdisc") == std::string::npos ? Plugin::Found : Plugin::Missing;
}

}  // namespace

Result<Facts> gather(netlink::Kernel& kernel) {
    auto snapshot = read_snapshot(kernel);
    if (!snapshot)
        return snapshot.error();
    utsname system{};
    uname(&system);
    Facts facts;
    facts.release = static_cast<const char*>(system.release);
    facts.module_loaded = fs::exists("/sys/module/sch_mercury");
    facts.module_loadable =
        run_command({"modprobe", "--dry-run", "--quiet", "sch_mercury"}).has_value();
    facts.plugin = find_plugin();
    facts.notsent_lowat = number_in("/proc/sys/net/ipv4/tcp_notsent_lowat");
    facts.limit_output = number_in("/proc/sys/net/ipv4/tcp_limit_output_bytes");
    for (const DeviceState& state : snapshot.value().devices) {
        if (!state.link.loopback)
            facts.nics.push_back(nic_of(state));
    }
    return facts;
}

}  // namespace mercury::cli
