// SPDX-License-Identifier: MIT
#include "replay/bound.hpp"

namespace mercury::replay {
namespace {

using std::chrono::nanoseconds;

double count(const std::vector<std::size_t>& hosts, std::size_t host) {
    return static_cast<double>(std::count(hosts.begin(), hosts.end(), host));
}

nanoseconds scaled(nanoseconds time, double factor) {
    return std::chrono::round<nanoseconds>(std::chrono::duration<double, std::nano>(time) * factor);
}

/// When the NIC has sent its load, from START on.
nanoseconds sent_at(nanoseconds start, const NicLoad& nic) {
    nanoseconds time = start;
    nanoseconds left = nic.wire;
    for (const Dip& dip : nic.dips) {
        const nanoseconds dip_end = dip.start + dip.length;
        if (time >= dip_end)
            continue;
        const nanoseconds before = std::max(dip.start - time, nanoseconds{0});
        if (left <= before)
            return time + left;
        left -= before;
        time += before;
        const nanoseconds during = scaled(dip_end - time, dip.factor);
        if (left <= during)
            return time + scaled(left, 1 / dip.factor);
        left -= during;
        time = dip_end;
    }
    return time + left;
}

}  // namespace

double tcp_goodput(Rate rate, unsigned mtu) {
    const double payload = mtu - 20 - 20 - 12;
    const double frame = mtu + 14;
    return static_cast<double>(rate.bits_per_second) * payload / frame;
}

nanoseconds wire_time(double bytes, Rate rate, unsigned mtu) {
    return std::chrono::round<nanoseconds>(
        std::chrono::duration<double>(bytes * 8 / tcp_goodput(rate, mtu)));
}

double nic_bytes(std::uint64_t bytes, const Placement& placement, std::size_t host) {
    const auto workers = static_cast<double>(placement.workers.size());
    const auto servers = static_cast<double>(placement.servers.size());
    const double workers_here = count(placement.workers, host);
    const double servers_here = count(placement.servers, host);
    return static_cast<double>(bytes) / servers *
           (workers_here * (servers - servers_here) + servers_here * (workers - workers_here));
}

double busiest_nic_bytes(std::uint64_t bytes, const Placement& placement) {
    double busiest = 0;
    for (const auto* hosts : {&placement.workers, &placement.servers}) {
        for (const std::size_t host : *hosts)
            busiest = std::max(busiest, nic_bytes(bytes, placement, host));
    }
    return busiest;
}

Bound bound_of(const Profile& profile, const Placement& placement, Rate rate, unsigned mtu) {
    return {profile.compute(), wire_time(busiest_nic_bytes(profile.bytes(), placement), rate, mtu)};
}

Bound bound_of(const Profile& profile, Rate rate) {
    return bound_of(profile, {{0}, {1}}, rate);
}

nanoseconds bound_of_run(nanoseconds compute, const std::vector<NicLoad>& nics,
                         std::size_t iterations) {
    nanoseconds time{0};
    for (std::size_t i = 0; i < iterations; ++i) {
        nanoseconds end = time + compute;
        for (const NicLoad& nic : nics)
            end = std::max(end, sent_at(time, nic));
        time = end;
    }
    return time;
}

}  // namespace mercury::replay
