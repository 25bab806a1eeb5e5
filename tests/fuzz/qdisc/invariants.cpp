// SPDX-License-Identifier: MIT
#include "invariants.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "mercury.h"

namespace fuzz {
namespace {

/// Sums over classes of one sort.
struct Sums {
    std::uint64_t qlen = 0;
    std::uint64_t backlog = 0;
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint64_t memory = 0;
    std::uint32_t active = 0;

    void add(const Entry& entry) {
        qlen += entry.qlen;
        backlog += entry.backlog;
        packets += entry.packets;
        bytes += entry.bytes;
        memory += entry.memory.value_or(0);
        active += entry.qlen > 0;
    }
};

void equal(std::string_view what, std::uint64_t one, std::uint64_t other) {
    if (one != other) {
        throw Violation(fmt::format("{}: {} and {}", what, one, other));
    }
}

void require(bool condition, std::string_view what, const Entry& entry) {
    if (!condition) {
        throw Violation(fmt::format("{} {:x}: {}: qlen {}, backlog {}, memory {}", entry.kind,
                                    entry.handle, what, entry.qlen, entry.backlog,
                                    entry.memory.value_or(0)));
    }
}

std::uint32_t minor_of(const Entry& entry) {
    return entry.handle & 0xffff;
}

bool is_job(const Entry& entry) {
    return minor_of(entry) >= MERCURY_MINOR_JOB(0) &&
           minor_of(entry) < MERCURY_MINOR_JOB(MERCURY_JOBS_MAX);
}

bool is_band_of(const Entry& entry, const Entry& job) {
    return minor_of(entry) < MERCURY_MINOR_JOB(0) &&
           (minor_of(entry) - 1) / MERCURY_BANDS_MAX == minor_of(job) - MERCURY_MINOR_JOB(0);
}

/// A job holds and has sent what its bands hold and have sent.
void check_job(const Entry& job, const std::vector<Entry>& classes) {
    Sums bands;
    for (const Entry& entry : classes) {
        if (is_band_of(entry, job)) {
            bands.add(entry);
        }
    }
    const std::string name = fmt::format("class {:x} and its bands: ", job.handle);
    equal(name + "qlen", job.qlen, bands.qlen);
    equal(name + "backlog", job.backlog, bands.backlog);
    equal(name + "packets", job.packets, bands.packets);
    equal(name + "bytes", job.bytes, bands.bytes);
    require(!job.qlen == !job.memory.value_or(0), "memory and qlen", job);
    require(!job.qlen == !job.backlog, "backlog and qlen", job);
}

}  // namespace

Look look_at(Route& route, int ifindex, std::uint32_t mercury) {
    Look look;
    look.qdiscs = route.qdiscs(ifindex);
    look.classes = route.classes(ifindex, mercury);
    look.again = route.qdiscs(ifindex);
    return look;
}

std::string describe(const Look& look) {
    std::string text;
    for (const Entry& entry : look.qdiscs) {
        text += fmt::format("\n  {} {:x} parent {:x}: qlen {}, backlog {}, drops {}", entry.kind,
                            entry.handle, entry.parent, entry.qlen, entry.backlog, entry.drops);
    }
    for (const Entry& entry : look.classes) {
        if (entry.qlen || entry.backlog) {
            text += fmt::format("\n  class {:x}: qlen {}, backlog {}", entry.handle, entry.qlen,
                                entry.backlog);
        }
    }
    return text;
}

void check(const Look& look, std::uint32_t mercury, bool counts_all) {
    const auto found = std::ranges::find(look.qdiscs, mercury, &Entry::handle);
    if (found == look.qdiscs.end()) {
        throw Violation(fmt::format("there is no qdisc {:x}", mercury));
    }
    Sums jobs;
    Sums all;
    bool has_default = false;
    for (const Entry& entry : look.classes) {
        if (is_job(entry)) {
            check_job(entry, look.classes);
            jobs.add(entry);
            all.add(entry);
        } else if (minor_of(entry) == MERCURY_MINOR_DEFAULT) {
            has_default = true;
            all.add(entry);
        }
    }
    require(has_default, "no default class", *found);
    equal("memory and that of the jobs", found->memory.value_or(0), jobs.memory);
    equal("active jobs and those with packets", found->active_jobs.value_or(0), jobs.active);
    require(!found->qlen == !found->backlog, "backlog and qlen", *found);
    // A packet that a parent has peeked at is in no class, but still here.
    const std::uint64_t peeked = found->qlen - all.qlen;
    require(peeked <= 1, fmt::format("qlen, but {} in the classes", all.qlen), *found);
    if (peeked == 0) {
        equal("backlog and that of the classes", found->backlog, all.backlog);
    } else {
        require(found->backlog > all.backlog,
                fmt::format("backlog, but {} in the classes", all.backlog), *found);
    }
    if (counts_all) {
        equal("packets and those of the classes", found->packets, all.packets);
        equal("bytes and those of the classes", found->bytes, all.bytes);
    }
}

bool is_empty(const std::vector<Entry>& qdiscs) {
    for (const Entry& entry : qdiscs) {
        require(entry.qlen || !entry.memory.value_or(0), "empty, and has memory", entry);
        require(entry.qlen || !entry.active_jobs.value_or(0), "empty, and has active jobs", entry);
    }
    return std::ranges::all_of(qdiscs,
                               [](const Entry& entry) { return !entry.qlen && !entry.backlog; });
}

}  // namespace fuzz
