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
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/types.h>

#include "uapi/mercury.h"

/*
 * The link's users are the jobs, from 0, and the default class. One u64 has a
 * bit for each of them, which is where the limit of 62 jobs comes from.
 */
#define MERCURY_DEFAULT 63U
#define MERCURY_USERS 64U

#define MERCURY_WORDS (MERCURY_BANDS_MAX / BITS_PER_LONG)

/* What tc -s class shows; only ever grows. */
struct mercury_counters {
	u64 segments; /* sent; a GSO packet has several, all others one */
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
	u64 heap_due; /* what the job's heap has for it, never later than due */
	u64 deadline; /* ns after enqueue, or MERCURY_TIME_NONE */
	u64 backlog;  /* bytes */
	u32 qlen;
	u32 limit; /* packets; 0: none of its own */
	u16 heap_at; /* place in the heap, if heap_due is a time */
	u16 number; /* its index in mercury_job.bands */

	struct mercury_counters count ____cacheline_aligned;
} ____cacheline_aligned;

struct mercury_heap_entry {
	u64 due; /* heap_due of the band */
	u16 band;
};

struct mercury_job {
	struct mercury_band *bands;
	struct mercury_heap_entry *heap; /* bands by due time, earliest first */
	unsigned long words; /* bit w: occupied[w] is not 0 */
	u64 sent; /* bytes in turn, not yet seen in credit */
	s64 credit; /* what may be rescued, in hundredths of a byte */
	u64 memory; /* bytes of truesize queued */
	u32 qlen;
	u32 inverse; /* of the weight, scaled */
	u32 weight;
	u32 limit; /* packets; 0: none of its own */
	u16 heap_len;
	u8 number; /* its index in mercury_core.job */
	u64 acks; /* pure ACKs put into band 0 */
	unsigned long occupied[MERCURY_WORDS]; /* bit b: band b has packets */
} ____cacheline_aligned;

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

/* What a packet takes. */
struct mercury_size {
	u32 bytes;
	u32 truesize;
};

/* The band of a job that sends next, and whether out of turn. */
struct mercury_pick {
	struct mercury_band *band;
	bool rescued;
};

size_t mercury_core_size(u32 jobs, u32 bands);
void mercury_core_init(struct mercury_core *core, u32 jobs, u32 bands);
void mercury_core_inherit(struct mercury_core *core, const struct mercury_core *old);
void mercury_core_clear(struct mercury_core *core);
void mercury_count_add(struct mercury_counters *to, const struct mercury_counters *from);

void mercury_core_set_rescue(struct mercury_core *core, u32 rescue);
void mercury_job_set_weight(struct mercury_core *core, struct mercury_job *job, u32 weight);
struct mercury_job *mercury_core_victim(struct mercury_core *core, u64 limit, bool by_memory);

u64 mercury_default_cost(struct mercury_core *core, u32 bytes);
void mercury_heap_advance(struct mercury_job *job, struct mercury_band *band, u64 due);
s64 mercury_job_credit(const struct mercury_core *core, struct mercury_job *job);
struct mercury_band *mercury_job_overdue(struct mercury_job *job, u64 now);

/*
 * What follows is done for each packet, and inline for that reason.
 *
 * At weight 1 a byte takes 2^MERCURY_BYTE_SHIFT of virtual time. The inverse of
 * a weight has more bits, so that it is off by less than 0.1 % at weight 1000.
 */
#define MERCURY_BYTE_SHIFT 16
#define MERCURY_INVERSE_SHIFT 20

/*
 * How far a user's start tag can be ahead of the present for having overdrawn:
 * one packet of 2^24 bytes at the smallest share. A tag further ahead, modulo
 * 2^64, is one of the past.
 */
#define MERCURY_MAX_LEAD (1ULL << 48)

/* --- Between jobs: shares ------------------------------------------------ */

/* A user that was idle starts at the present. */
static inline void mercury_core_catch_up(struct mercury_core *core, u32 user)
{
	if (core->vtime[user] - core->vnow > MERCURY_MAX_LEAD)
		core->vtime[user] = core->vnow;
}

/* The user may have something to send. */
static inline void mercury_core_wake(struct mercury_core *core, u32 user)
{
	if (core->active & BIT_ULL(user))
		return;
	core->active |= BIT_ULL(user);
	if (user != MERCURY_DEFAULT)
		core->weights += core->job[user].weight;
	mercury_core_catch_up(core, user);
}

/* The user has nothing to send now. */
static inline void mercury_core_sleep(struct mercury_core *core, u32 user)
{
	if (!(core->active & BIT_ULL(user)))
		return;
	core->active &= ~BIT_ULL(user);
	if (user != MERCURY_DEFAULT)
		core->weights -= core->job[user].weight;
}

/* The active user that is furthest behind its share, or -1 if none is active. */
static inline int mercury_core_next(const struct mercury_core *core)
{
	u64 left = core->active;
	u32 next, user;

	if (!left)
		return -1;
	next = __ffs64(left);
	while (left &= left - 1) {
		user = __ffs64(left);
		if ((s64)(core->vtime[user] - core->vtime[next]) < 0)
			next = user;
	}
	return next;
}

/* A job or the default class sends a packet. */
static inline void mercury_core_charge(struct mercury_core *core, u32 user, u64 cost)
{
	core->vnow = core->vtime[user];
	core->vtime[user] += cost;
}

/* What a job pays for a packet, in virtual time. */
static inline u64 mercury_job_cost(const struct mercury_job *job, u32 bytes)
{
	return ((u64)bytes * job->inverse) >> (MERCURY_INVERSE_SHIFT - MERCURY_BYTE_SHIFT);
}

/* --- Within a job: bands ------------------------------------------------- */

/* The most urgent band of a job that has packets. */
static inline struct mercury_band *mercury_job_first(const struct mercury_job *job)
{
	u32 word = __ffs(job->words);

	return &job->bands[word * BITS_PER_LONG + __ffs(job->occupied[word])];
}

/* The least urgent one. */
static inline struct mercury_band *mercury_job_last(const struct mercury_job *job)
{
	u32 word = __fls(job->words);

	return &job->bands[word * BITS_PER_LONG + __fls(job->occupied[word])];
}

/*
 * The band of a job with packets that sends next: the first, or one that is
 * overdue, while the job's budget for that lasts.
 */
static inline struct mercury_pick mercury_job_next(const struct mercury_core *core,
						   struct mercury_job *job, u64 now)
{
	struct mercury_pick pick = { .band = mercury_job_first(job) };
	struct mercury_band *overdue;

	if (job->heap_len && unlikely(job->heap[0].due <= now) && core->rescue &&
	    mercury_job_credit(core, job) >= 0) {
		overdue = mercury_job_overdue(job, now);
		if (overdue && overdue != pick.band)
			pick = (struct mercury_pick){ .band = overdue, .rescued = true };
	}
	return pick;
}

/* A band has a new head, which is due then. */
static inline void mercury_band_set_due(struct mercury_job *job, struct mercury_band *band,
					u64 due)
{
	band->due = due;
	if (due < band->heap_due)
		mercury_heap_advance(job, band, due);
}

/*
 * A packet was queued at the tail of its band. True: it is the head as well, and
 * the caller says when it is due.
 */
static inline bool mercury_core_put(struct mercury_core *core, struct mercury_job *job,
				    struct mercury_band *band, struct mercury_size size)
{
	u32 word = band->number / BITS_PER_LONG;

	band->backlog += size.bytes;
	job->memory += size.truesize;
	core->qlen++;
	core->memory += size.truesize;
	if (core->memory > core->memory_peak)
		core->memory_peak = core->memory;
	if (!job->qlen++)
		mercury_core_wake(core, job->number);
	if (band->qlen++)
		return false;
	job->occupied[word] |= BIT(band->number % BITS_PER_LONG);
	job->words |= BIT(word);
	return true;
}

/*
 * A packet is gone from its band. True: the band has others; if it was the head
 * that went, the caller says when the new one is due.
 */
static inline bool mercury_core_drop(struct mercury_core *core, struct mercury_job *job,
				     struct mercury_band *band, struct mercury_size size)
{
	u32 word = band->number / BITS_PER_LONG;

	core->memory -= size.truesize;
	core->qlen--;
	job->memory -= size.truesize;
	band->backlog -= size.bytes;
	if (!--job->qlen)
		mercury_core_sleep(core, job->number);
	if (--band->qlen)
		return true;
	band->due = MERCURY_TIME_NONE;
	job->occupied[word] &= ~BIT(band->number % BITS_PER_LONG);
	if (!job->occupied[word])
		job->words &= ~BIT(word);
	return false;
}

/*
 * Count a packet that leaves its band, was due then, and has waited so long;
 * charge it to the job's budget if it is sent out of turn.
 */
static inline void mercury_job_sent(const struct mercury_core *core, struct mercury_job *job,
				    struct mercury_band *band, bool rescued, u32 bytes,
				    u32 segments, u64 due, u64 sojourn, u64 now)
{
	struct mercury_counters *count = &band->count;
	u32 bucket = fls64(sojourn >> MERCURY_SOJOURN_SHIFT);

	count->segments += segments;
	count->bytes += bytes;
	count->sojourn[min_t(u32, bucket, MERCURY_SOJOURN_BUCKETS - 1)]++;

	if (unlikely(rescued)) {
		job->credit -= (s64)bytes * (100 - core->rescue);
		count->rescued++;
		count->rescued_bytes += bytes;
	} else {
		job->sent += bytes;
	}
	if (unlikely(now > due)) {
		count->missed++;
		count->lateness += now - due;
		count->lateness_max = max(count->lateness_max, now - due);
	} else if (due != MERCURY_TIME_NONE) {
		count->met++;
	}
}

/* Has it ever carried a packet, or a limit of its own? Then tc class shows it. */
static inline bool mercury_band_is_used(const struct mercury_band *band)
{
	return band->qlen || band->count.segments || band->count.drop_limit ||
	       band->count.drop_memory || band->limit;
}

#endif /* _MERCURY_CORE_H */
