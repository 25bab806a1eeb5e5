// SPDX-License-Identifier: MIT
// mercury_core as sch_mercury uses it: a queue of packets that are numbered, not real.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

extern "C" {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "mercury_core.h"
#pragma GCC diagnostic pop
}
#undef min
#undef max

namespace mercury::test {

// Where a packet is queued.
struct Place {
    std::uint32_t job;
    std::uint32_t band;
};

struct Packet {
    std::uint64_t id;
    mercury_size size;
    std::uint64_t enqueued; // ns
    std::uint64_t own_due = 0; // a deadline of its own, or 0
};

// A packet that has left, and how.
struct Sent {
    Packet packet;
    Place from;
    bool rescued;
};

// The caller that mercury_core.h asks for.
class Queue {
public:
    Queue(std::uint32_t jobs, std::uint32_t bands);

    mercury_core& core() { return *core_; }
    mercury_job& job(std::uint32_t j) { return core_->job[j]; }
    mercury_band& band(Place at) { return job(at.job).bands[at.band]; }
    const std::deque<Packet>& packets(Place at) const;

    void put(Place at, Packet packet);
    // The job or default class to send next, or -1.
    int next() const { return mercury_core_next(core_.get()); }
    // The next packet of a job with packets, at this time; the link is charged for it.
    Sent take(std::uint32_t job, std::uint64_t now);
    // The next packet of any job; the default class must be asleep.
    std::optional<Sent> take(std::uint64_t now);
    // The packet that goes first when a limit, of packets or of truesize, is exceeded.
    Packet push_out(std::uint64_t limit, bool by_memory);
    void set_deadline(Place at, std::uint64_t deadline);
    void resize(std::uint32_t jobs, std::uint32_t bands);
    void clear();

    // Throws std::logic_error that names the first invariant found broken.
    void check() const;

private:
    struct Free {
        void operator()(mercury_core* core) const { std::free(core); }
    };
    using Core = std::unique_ptr<mercury_core, Free>;

    static Core make(std::uint32_t jobs, std::uint32_t bands);
    static std::uint64_t due(const Packet& packet, const mercury_band& band);
    std::deque<Packet>& packets_of(Place at);
    void check_job(std::uint32_t j) const;
    void check_heap(const mercury_job& job) const;

    Core core_;
    std::vector<std::deque<Packet>> packets_; // [job * bands + band]
};

} // namespace mercury::test
