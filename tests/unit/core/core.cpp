// SPDX-License-Identifier: MIT
#include "core.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace mercury::test {

namespace {

void require(bool holds, const char* invariant) {
    if (!holds) {
        throw std::logic_error(std::string("broken: ") + invariant);
    }
}

} // namespace

Queue::Queue(std::uint32_t jobs, std::uint32_t bands)
    : core_(make(jobs, bands)), packets_(std::size_t{jobs} * bands) {}

Queue::Core Queue::make(std::uint32_t jobs, std::uint32_t bands) {
    // Exactly what is asked for, so that ASan sees a write beyond it.
    void* memory = std::calloc(1, mercury_core_size(jobs, bands));
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    Core core(static_cast<mercury_core*>(memory));
    mercury_core_init(core.get(), jobs, bands);
    return core;
}

std::uint64_t Queue::due(const Packet& packet, const mercury_band& band) {
    if (packet.own_due != 0) {
        return packet.own_due;
    }
    return band.deadline == MERCURY_TIME_NONE ? MERCURY_TIME_NONE : packet.enqueued + band.deadline;
}

std::deque<Packet>& Queue::packets_of(Place at) {
    return packets_[std::size_t{at.job} * core_->bands + at.band];
}

const std::deque<Packet>& Queue::packets(Place at) const {
    return packets_[std::size_t{at.job} * core_->bands + at.band];
}

void Queue::put(Place at, Packet packet) {
    packets_of(at).push_back(packet);
    if (mercury_core_put(core_.get(), &job(at.job), &band(at), packet.size)) {
        mercury_band_set_due(&job(at.job), &band(at), due(packet, band(at)));
    }
}

Sent Queue::take(std::uint32_t j, std::uint64_t now) {
    const mercury_pick pick = mercury_job_next(core_.get(), &job(j), now);
    const Place at{j, pick.band->number};
    auto& queue = packets_of(at);
    const Packet packet = queue.front();
    mercury_job_sent(core_.get(), &job(j), &band(at), pick.rescued, packet.size.bytes, 1,
                     band(at).due, now - packet.enqueued, now);
    queue.pop_front();
    if (mercury_core_drop(core_.get(), &job(j), pick.band, packet.size)) {
        mercury_band_set_due(&job(j), pick.band, due(queue.front(), band(at)));
    }
    mercury_core_charge(core_.get(), j, mercury_job_cost(&job(j), packet.size.bytes));
    return {packet, at, pick.rescued};
}

std::optional<Sent> Queue::take(std::uint64_t now) {
    const int user = next();
    if (user < 0) {
        return std::nullopt;
    }
    return take(static_cast<std::uint32_t>(user), now);
}

Packet Queue::push_out(std::uint64_t limit, bool by_memory) {
    mercury_job* victim = mercury_core_victim(core_.get(), limit, by_memory);
    mercury_band* last = mercury_job_last(victim);
    const Place at{victim->number, last->number};
    const Packet packet = packets_of(at).back();
    packets_of(at).pop_back();
    mercury_core_drop(core_.get(), victim, last, packet.size);
    return packet;
}

void Queue::set_deadline(Place at, std::uint64_t deadline) {
    band(at).deadline = deadline;
    if (!packets(at).empty()) {
        mercury_band_set_due(&job(at.job), &band(at), due(packets(at).front(), band(at)));
    }
}

void Queue::resize(std::uint32_t jobs, std::uint32_t bands) {
    Core old = make(jobs, bands);
    mercury_core_inherit(old.get(), core_.get());
    std::swap(core_, old);
    const auto before = std::exchange(packets_, {});
    packets_.resize(std::size_t{jobs} * bands);
    for (std::uint32_t j = 0; j < old->jobs; ++j) {
        for (std::uint32_t b = 0; b < old->bands; ++b) {
            for (const Packet& packet : before[std::size_t{j} * old->bands + b]) {
                put({std::min(j, jobs - 1), std::min(b, bands - 1)}, packet);
            }
        }
    }
}

void Queue::clear() {
    mercury_core_clear(core_.get());
    std::ranges::for_each(packets_, [](auto& queue) { queue.clear(); });
}

void Queue::check_heap(const mercury_job& job) const {
    for (std::uint32_t i = 0; i < job.heap_len; ++i) {
        const mercury_heap_entry& entry = job.heap[i];
        require(entry.band < core_->bands, "heap entries name bands");
        const mercury_band& band = job.bands[entry.band];
        require(band.heap_at == i, "bands know their place in the heap");
        require(band.heap_due == entry.due, "bands know what the heap has for them");
        require(entry.due <= band.due, "heap times are not later than due times");
        require(i == 0 || job.heap[(i - 1) / 2].due <= entry.due, "the heap is a heap");
    }
}

void Queue::check_job(std::uint32_t j) const {
    const mercury_job& job = core_->job[j];
    std::uint64_t memory = 0;
    std::uint32_t qlen = 0;
    std::uint32_t in_heap = 0;
    for (std::uint32_t b = 0; b < core_->bands; ++b) {
        const mercury_band& band = job.bands[b];
        const auto& queue = packets({j, b});
        const bool bit = (job.occupied[b / BITS_PER_LONG] & BIT(b % BITS_PER_LONG)) != 0;
        std::uint64_t bytes = 0;
        for (const Packet& packet : queue) {
            bytes += packet.size.bytes;
            memory += packet.size.truesize;
        }
        qlen += band.qlen;
        require(band.qlen == queue.size(), "band qlen");
        require(band.backlog == bytes, "band backlog");
        require(bit == !queue.empty(), "the bitmap is the occupancy");
        require(band.due == (queue.empty() ? MERCURY_TIME_NONE : due(queue.front(), band)),
                "due is of the head");
        require(band.due == MERCURY_TIME_NONE || band.heap_due != MERCURY_TIME_NONE,
                "bands that can be overdue are in the heap");
        in_heap += band.heap_due != MERCURY_TIME_NONE ? 1 : 0;
    }
    for (std::size_t w = 0; w < MERCURY_WORDS; ++w) {
        require(((job.words & BIT(w)) != 0) == (job.occupied[w] != 0), "the upper bitmap");
    }
    require(job.qlen == qlen, "job qlen");
    require(job.memory == memory, "job memory");
    require(((core_->active & BIT_ULL(j)) != 0) == (qlen != 0), "jobs with packets are active");
    require(job.heap_len == in_heap, "the heap has just these bands");
    check_heap(job);
}

void Queue::check() const {
    std::uint64_t memory = 0;
    std::uint32_t qlen = 0;
    std::uint32_t weights = 0;
    for (std::uint32_t j = 0; j < core_->jobs; ++j) {
        check_job(j);
        memory += core_->job[j].memory;
        qlen += core_->job[j].qlen;
        weights += core_->job[j].qlen != 0 ? core_->job[j].weight : 0;
    }
    require(core_->memory == memory, "memory");
    require(core_->qlen == qlen, "qlen");
    require(core_->weights == weights, "weights of the active jobs");
    require(core_->memory_peak >= core_->memory, "memory peak");
}

} // namespace mercury::test
