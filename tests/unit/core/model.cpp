// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <algorithm>
#include <utility>

namespace mercury::test {

Model::Model(std::uint32_t jobs, std::uint32_t bands) : jobs_(jobs) {
    for (Job& job : jobs_) {
        job.bands.resize(bands);
    }
}

bool Model::has_packets(std::uint32_t job) const {
    return std::ranges::any_of(jobs_[job].bands,
                               [](const Band& band) { return !band.packets.empty(); });
}

std::size_t Model::qlen() const {
    std::size_t sum = 0;
    for (const Job& job : jobs_) {
        for (const Band& band : job.bands) {
            sum += band.packets.size();
        }
    }
    return sum;
}

std::uint64_t Model::due(const Packet& packet, const Band& band) {
    if (packet.own_due != 0) {
        return packet.own_due;
    }
    return band.deadline == MERCURY_TIME_NONE ? MERCURY_TIME_NONE : packet.enqueued + band.deadline;
}

void Model::put(Place at, Packet packet) {
    if (!has_packets(at.job)) {
        jobs_[at.job].start = std::max(jobs_[at.job].start, now_);
    }
    jobs_[at.job].bands[at.band].packets.push_back(packet);
}

void Model::wake_default() {
    if (!default_awake_) {
        default_start_ = std::max(default_start_, now_);
    }
    default_awake_ = true;
}

std::set<int> Model::may_send() const {
    std::map<VirtualTime, std::set<int>> by_start;
    for (std::uint32_t j = 0; j < jobs_.size(); ++j) {
        if (has_packets(j)) {
            by_start[jobs_[j].start].insert(static_cast<int>(j));
        }
    }
    if (default_awake_) {
        by_start[default_start_].insert(MERCURY_DEFAULT);
    }
    return by_start.empty() ? std::set<int>{-1} : by_start.begin()->second;
}

std::set<std::uint32_t> Model::may_send(std::uint32_t j, std::uint64_t now) const {
    const auto& bands = jobs_[j].bands;
    std::map<std::uint64_t, std::set<std::uint32_t>> overdue;
    std::optional<std::uint32_t> first;
    for (std::uint32_t b = 0; b < bands.size(); ++b) {
        if (bands[b].packets.empty()) {
            continue;
        }
        first = first.value_or(b);
        const std::uint64_t time = due(bands[b].packets.front(), bands[b]);
        if (time != MERCURY_TIME_NONE && time <= now) {
            overdue[time].insert(b);
        }
    }
    if (rescue_ != 0 && jobs_[j].credit >= 0 && !overdue.empty()) {
        return overdue.begin()->second;
    }
    return {first.value()};
}

void Model::count_sent(Band& band, const Packet& packet, std::uint64_t now, bool rescued) {
    mercury_counters& count = band.count;
    ++count.segments;
    count.bytes += packet.size.bytes;
    std::uint32_t bucket = 0;
    while (bucket + 1 < MERCURY_SOJOURN_BUCKETS &&
           now - packet.enqueued >= (std::uint64_t{1024} << bucket)) {
        ++bucket;
    }
    ++count.sojourn[bucket];
    if (rescued) {
        ++count.rescued;
        count.rescued_bytes += packet.size.bytes;
    }
    const std::uint64_t time = due(packet, band);
    if (time == MERCURY_TIME_NONE) {
        return;
    }
    if (now <= time) {
        ++count.met;
    } else {
        ++count.missed;
        count.lateness += now - time;
        count.lateness_max = std::max<std::uint64_t>(count.lateness_max, now - time);
    }
}

std::uint32_t Model::active_weights() const {
    std::uint32_t sum = 0;
    for (std::uint32_t j = 0; j < jobs_.size(); ++j) {
        sum += has_packets(j) ? jobs_[j].weight : 0;
    }
    return sum;
}

Sent Model::take(Place from, std::uint64_t now) {
    Job& job = jobs_[from.job];
    Band& band = job.bands[from.band];
    const Packet packet = band.packets.front();
    const std::uint32_t bytes = packet.size.bytes;

    // Sending from any band but the first with packets is a rescue.
    const bool rescued =
        std::any_of(job.bands.begin(), job.bands.begin() + from.band,
                    [](const Band& before) { return !before.packets.empty(); });
    count_sent(band, packet, now, rescued);
    band.packets.pop_front();

    constexpr std::int64_t most = 100LL * 1024 * 1024; // 1 MiB
    if (rescued) {
        job.credit -= std::int64_t{bytes} * (100 - rescue_);
    } else {
        job.credit = std::min(job.credit + std::int64_t{bytes} * rescue_, most);
    }
    now_ = job.start;
    job.start += (VirtualTime{bytes} * ((1U << 20) / job.weight)) >> 4;
    return {packet, from, rescued};
}

void Model::charge_default(std::uint32_t bytes) {
    now_ = default_start_;
    const VirtualTime cost = VirtualTime{bytes} * 65536 * (100 - default_share_) + default_left_;
    const VirtualTime divisor = default_share_ * std::max(active_weights(), 1U);
    default_start_ += cost / divisor;
    default_left_ = cost % divisor;
}

std::set<std::uint32_t> Model::victims(std::uint64_t limit, bool by_memory) const {
    std::map<std::int64_t, std::set<std::uint32_t>> by_excess;
    for (std::uint32_t j = 0; j < jobs_.size(); ++j) {
        if (!has_packets(j)) {
            continue;
        }
        std::int64_t held = 0;
        for (const Band& band : jobs_[j].bands) {
            for (const Packet& packet : band.packets) {
                held += by_memory ? packet.size.truesize : 1;
            }
        }
        const std::uint64_t share = limit * jobs_[j].weight / active_weights();
        by_excess[held - static_cast<std::int64_t>(share)].insert(j);
    }
    return by_excess.rbegin()->second;
}

Packet Model::push_out(std::uint32_t j) {
    auto& bands = jobs_[j].bands;
    const auto last = std::find_if(bands.rbegin(), bands.rend(),
                                   [](const Band& band) { return !band.packets.empty(); });
    const Packet packet = last->packets.back();
    last->packets.pop_back();
    return packet;
}

void Model::set_deadline(Place at, std::uint64_t deadline) {
    jobs_[at.job].bands[at.band].deadline = deadline;
}

void Model::resize(std::uint32_t jobs, std::uint32_t bands) {
    const std::vector<Job> before = std::exchange(jobs_, std::vector<Job>(jobs));
    for (Job& job : jobs_) {
        job.bands.resize(bands);
    }
    for (std::uint32_t j = 0; j < before.size(); ++j) {
        Job& job = jobs_[std::min(j, jobs - 1)];
        if (j < jobs) {
            job.weight = before[j].weight;
            job.credit = before[j].credit;
            job.start = before[j].start;
        }
        for (std::uint32_t b = 0; b < before[j].bands.size(); ++b) {
            Band& band = job.bands[std::min(b, bands - 1)];
            if (j < jobs && b < bands) {
                band.deadline = before[j].bands[b].deadline;
            }
            mercury_count_add(&band.count, &before[j].bands[b].count);
        }
    }
    for (std::uint32_t j = 0; j < before.size(); ++j) {
        for (std::uint32_t b = 0; b < before[j].bands.size(); ++b) {
            for (const Packet& packet : before[j].bands[b].packets) {
                put({std::min(j, jobs - 1), std::min(b, bands - 1)}, packet);
            }
        }
    }
    default_awake_ = false;
    default_left_ = 0;
}

void Model::clear() {
    for (Job& job : jobs_) {
        job.credit = 0;
        for (Band& band : job.bands) {
            band.packets.clear();
        }
    }
    default_awake_ = false;
}

} // namespace mercury::test
