// SPDX-License-Identifier: MIT
// What mercury_core must do, written to be seen to be right: no bitmaps, no heap, no wrapping
// clocks, every question answered by looking at everything.
#pragma once

#include "core.hpp"

#include <map>
#include <set>

namespace mercury::test {

__extension__ using VirtualTime = __int128;

class Model {
public:
    Model(std::uint32_t jobs, std::uint32_t bands);

    void put(Place at, Packet packet);
    void wake_default();
    void sleep_default() { default_awake_ = false; }

    // Whom the link's shares allow to send next; more than one where they are equal.
    std::set<int> may_send() const;
    // Which bands of a job with packets may send next.
    std::set<std::uint32_t> may_send(std::uint32_t job, std::uint64_t now) const;
    // Carries out what was chosen; says what must have been sent.
    Sent take(Place from, std::uint64_t now);
    void charge_default(std::uint32_t bytes);

    // The jobs that may be made to give up a packet.
    std::set<std::uint32_t> victims(std::uint64_t limit, bool by_memory) const;
    // The last packet of a job's least urgent band with packets.
    Packet push_out(std::uint32_t job);

    void set_deadline(Place at, std::uint64_t deadline);
    void set_weight(std::uint32_t job, std::uint32_t weight) { jobs_[job].weight = weight; }
    void set_default_share(std::uint32_t per_cent) { default_share_ = per_cent; }
    void set_rescue(std::uint32_t per_cent) { rescue_ = per_cent; }
    void resize(std::uint32_t jobs, std::uint32_t bands);
    void clear();

    bool has_packets(std::uint32_t job) const;
    std::size_t qlen() const;
    const mercury_counters& count(Place at) const { return jobs_[at.job].bands[at.band].count; }

private:
    struct Band {
        std::deque<Packet> packets;
        std::uint64_t deadline = MERCURY_DEADLINE_DEFAULT;
        mercury_counters count{};
    };
    struct Job {
        std::vector<Band> bands;
        std::uint32_t weight = MERCURY_WEIGHT_DEFAULT;
        std::int64_t credit = 0; // hundredths of a byte
        VirtualTime start = 0;
    };

    static std::uint64_t due(const Packet& packet, const Band& band);
    std::uint32_t active_weights() const;
    void count_sent(Band& band, const Packet& packet, std::uint64_t now, bool rescued);

    std::vector<Job> jobs_;
    VirtualTime now_ = 0;
    VirtualTime default_start_ = 0;
    VirtualTime default_left_ = 0;
    bool default_awake_ = false;
    std::uint32_t default_share_ = MERCURY_SHARE_DEFAULT;
    std::uint32_t rescue_ = MERCURY_RESCUE_DEFAULT;
};

} // namespace mercury::test
