/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The order of sch_mercury: which job may send next, and which of its bands.
 *
 * Nothing here knows sockets, packets or netlink: packets are list_heads that
 * the caller queues on a band, and their sizes and times are arguments. The
 * caller serialises all calls on one core. Times are ns of one clock.
 */
#ifndef _MERCURY_CORE_H
#define _MERCURY_CORE_H

#include <linux/bitops.h>
#include <linux/cache.h>
#include <linux/list.h>
#include <linux/types.h>

#include "uapi/mercury.h"

/*
 * The links's users are the jobs, from 0, and the default class. One u64 has a
 * bit for each of them, which is where the limit of 62 jobs comes from.
 */
#define MERCURY_DEFAULT 63U
#define MERCURY_USERS 64U

#define MERCURY_WORDS (MERCURY_BANDS_MAX / BITS_PER_LONG)

/* What tc -s class shows; only ever grows. */
struct mercury_counters {
	u64 packets; /* sent */
	u64 bytes;
	u64 met;     /* packets sent by their deadline */
	u64 missed;  /* ... after it */
	u64 lateness; /* ns, sum over the missed */
	u64 lateness_max; /* ns */
	u64 rescued; /* packets sent out of turn */
	u64 rescued_bytes;
	u64 drop_limit; /* packets */
	u64 drop_memory;
	u64 ce_marks;
	u64 sojourn[MERCURY_SOJOURN_BUCKETS]; /* packets */
};

struct mercury_band {
	/* All that an enqueue touches, and a dequeue but for its counters. */
	struct list_head queue; /* the packets, oldest first */
	u64 due;      /* when the head is overdue, or MERCURY_TIME_NONE */
	u64 deadline; /* ns after enqueue, or MERCURY_TIME_NONE */
	u64 backlog;  /* bytes */
	u32 qlen;
	u32 limit; /* packets; 0: none of its own */
	u16 heap_at; /* 1 + place in the job's heap; 0: not there */

	struct mercury_counters count ____cacheline_aligned;
} ____cacheline_aligned;

struct mercury_heap_entry {
	u64 due; /* never later than the band's own */
	u16 band;
};

struct mercury_job {
	struct mercury_band *bands;
	struct mercury_heap_entry *heap; /* bands by due time, earliest first */
	unsigned long words; /* bit w: occupied[w] is not 0 */
	s64 credit; /* what may be rescued, in hundredths of a byte */
	u64 memory; /* bytes of truesize queued */
	u32 qlen;
	u32 inverse; /* of the weight, scaled */
	u32 weight;
	u32 limit; /* packets; 0: none of its own */
	u16 heap_len;
	u64 acks; /* pure ACKs put into band 0 */
	unsigned long occupied[MERCURY_WORDS]; /* bit b: band b has packets */
};

struct mercury_core {
	u64 active;  /* bit u: user u may have something to send */
	u64 vnow;    /* virtual time: start tag of the last packet sent */
	u64 memory;  /* bytes of truesize in all bands */
	u64 memory_peak;
	u32 qlen;    /* packets in all bands */
	u32 weights; /* sum over the active jobs */
	u32 default_share; /* per cent of the link */
	u32 remainder; /* of the last cost of the default class */
	u32 rescue; /* per cent of what a job sends */
	u32 jobs;
	u32 bands; /* of each job */
	u64 vtime[MERCURY_USERS]; /* start tag of each user's next packet */
	struct mercury_job job[];
};

/* The place of a packet, and what it takes there. */
struct mercury_place {
	u32 job;
	u32 band;
};

struct mercury_size {
	u32 bytes;
	u32 truesize;
};

size_t mercury_core_size(u32 jobs, u32 bands);
void mercury_core_init(struct mercury_core *core, u32 jobs, u32 bands);
void mercury_core_inherit(struct mercury_core *core, const struct mercury_core *old);
void mercury_core_clear(struct mercury_core *core);

void mercury_core_wake(struct mercury_core *core, u32 user);
void mercury_core_sleep(struct mercury_core *core, u32 user);
int mercury_core_next(const struct mercury_core *core);
void mercury_core_charge(struct mercury_core *core, u32 user, u32 bytes);

u32 mercury_job_next(const struct mercury_core *core, struct mercury_job *job, u64 now);
u32 mercury_job_last(const struct mercury_job *job);
void mercury_job_set_weight(struct mercury_core *core, u32 job, u32 weight);

void mercury_core_put(struct mercury_core *core, struct mercury_place at,
		      struct mercury_size size, u64 due);
void mercury_core_take(struct mercury_core *core, struct mercury_place at,
		       struct mercury_size size, u64 next_due);
void mercury_core_drop(struct mercury_core *core, struct mercury_place at,
		       struct mercury_size size);
int mercury_core_victim(const struct mercury_core *core, u64 limit, bool by_memory);

void mercury_core_sent(struct mercury_core *core, struct mercury_place at, u32 bytes,
		       u64 enqueued, u64 now);
void mercury_core_head_due(struct mercury_core *core, struct mercury_place at, u64 due);
void mercury_count_add(struct mercury_counters *to, const struct mercury_counters *from);

static inline struct mercury_band *mercury_core_band(struct mercury_core *core,
						     struct mercury_place at)
{
	return &core->job[at.job].bands[at.band];
}

/* Has it ever carried a packet, or a limit of its own? Then tc class shows it. */
static inline bool mercury_band_is_used(const struct mercury_band *band)
{
	return band->qlen || band->count.packets || band->count.drop_limit ||
	       band->count.drop_memory || band->limit;
}

#endif /* _MERCURY_CORE_H */
