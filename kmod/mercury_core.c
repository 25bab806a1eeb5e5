// SPDX-License-Identifier: GPL-2.0
/*
 * The order of sch_mercury, in two levels.
 *
 * Between jobs, shares: every user of the link (a job or the default class)
 * has a virtual time that advances by bytes / weight as it sends, and the one
 * that is furthest behind sends next (start-time fair queueing: P. Goyal,
 * H. Vin, H. Cheng, SIGCOMM 1996). A user that was idle starts at the present,
 * so it can neither save up nor be made to pay for its absence, but for the
 * last packet that it overdrew. Unlike deficit round robin, this gives a user
 * that sends little its turn after one packet of the others and not after a
 * whole round of their quanta, whatever the weights.
 *
 * Within a job, the lowest band first, found in a two-level bitmap. Bands have
 * deadlines: a heap of them by due time lets one that has waited too long go
 * first, within a budget. The heap is lazy: the time stored in an entry is
 * never later than the true one of the band, and only an entry that seems
 * overdue is looked at and set right. So a band costs the heap O(log bands)
 * once in each of its deadlines, and a packet costs it one comparison.
 */
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/string.h>

#include "mercury_core.h"

/*
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

/*
 * Credit is kept in hundredths of a byte, so that a per cent of a byte is 1.
 * A job can save up this much: 1 MiB is 0.8 ms at 10 Gbit/s.
 */
#define MERCURY_CREDIT_MAX (100LL << 20)

/* --- Set-up ------------------------------------------------------------- */

/* Bytes of memory, zeroed by the caller, that mercury_core_init() lays out. */
size_t mercury_core_size(u32 jobs, u32 bands)
{
	size_t job = sizeof(struct mercury_job) +
		     bands * (sizeof(struct mercury_band) + sizeof(struct mercury_heap_entry));

	/* The bands want a cache line of their own. */
	return sizeof(struct mercury_core) + jobs * job + __alignof__(struct mercury_band);
}

static void mercury_job_set_inverse(struct mercury_job *job, u32 weight)
{
	job->weight = weight;
	job->inverse = (1U << MERCURY_INVERSE_SHIFT) / weight;
}

static void mercury_band_empty(struct mercury_band *band)
{
	INIT_LIST_HEAD(&band->queue);
	band->due = MERCURY_TIME_NONE;
	band->backlog = 0;
	band->qlen = 0;
	band->heap_at = 0;
}

void mercury_core_init(struct mercury_core *core, u32 jobs, u32 bands)
{
	struct mercury_band *band = PTR_ALIGN((struct mercury_band *)&core->job[jobs],
					      __alignof__(struct mercury_band));
	struct mercury_heap_entry *heap = (struct mercury_heap_entry *)&band[jobs * bands];
	u32 j, b;

	core->jobs = jobs;
	core->bands = bands;
	core->default_share = MERCURY_SHARE_DEFAULT;
	core->rescue = MERCURY_RESCUE_DEFAULT;
	for (j = 0; j < jobs; j++) {
		struct mercury_job *job = &core->job[j];

		job->bands = &band[j * bands];
		job->heap = &heap[j * bands];
		mercury_job_set_inverse(job, MERCURY_WEIGHT_DEFAULT);
		for (b = 0; b < bands; b++) {
			mercury_band_empty(&job->bands[b]);
			job->bands[b].deadline = MERCURY_DEADLINE_DEFAULT;
		}
	}
}

void mercury_count_add(struct mercury_counters *to, const struct mercury_counters *from)
{
	u32 i;

	to->packets += from->packets;
	to->bytes += from->bytes;
	to->met += from->met;
	to->missed += from->missed;
	to->lateness += from->lateness;
	to->lateness_max = max(to->lateness_max, from->lateness_max);
	to->rescued += from->rescued;
	to->rescued_bytes += from->rescued_bytes;
	to->drop_limit += from->drop_limit;
	to->drop_memory += from->drop_memory;
	to->ce_marks += from->ce_marks;
	for (i = 0; i < MERCURY_SOJOURN_BUCKETS; i++)
		to->sojourn[i] += from->sojourn[i];
}

static void mercury_job_inherit(struct mercury_core *core, u32 j, const struct mercury_core *old)
{
	const struct mercury_job *from = &old->job[j];
	struct mercury_job *to = &core->job[min(j, core->jobs - 1)];
	bool same = j < core->jobs;
	u32 b;

	to->acks += from->acks;
	if (same) {
		mercury_job_set_inverse(to, from->weight);
		to->limit = from->limit;
		to->credit = from->credit;
		core->vtime[j] = old->vtime[j];
	}
	for (b = 0; b < old->bands; b++) {
		struct mercury_band *band = &to->bands[min(b, core->bands - 1)];

		if (same && b < core->bands) {
			band->deadline = from->bands[b].deadline;
			band->limit = from->bands[b].limit;
		}
		mercury_count_add(&band->count, &from->bands[b].count);
	}
}

/*
 * Give a new, empty core the settings of an old one of another size. What a
 * job or band that is gone has counted goes to the last one, as its packets
 * will, so that no sum over the classes ever falls.
 */
void mercury_core_inherit(struct mercury_core *core, const struct mercury_core *old)
{
	u32 j;

	core->default_share = old->default_share;
	core->rescue = old->rescue;
	core->memory_peak = old->memory_peak;
	core->vnow = old->vnow;
	for (j = 0; j < core->jobs; j++)
		core->vtime[j] = old->vnow;
	core->vtime[MERCURY_DEFAULT] = old->vtime[MERCURY_DEFAULT];
	for (j = 0; j < old->jobs; j++)
		mercury_job_inherit(core, j, old);
}

/* Forget all packets, which the caller has freed; keep settings and counts. */
void mercury_core_clear(struct mercury_core *core)
{
	u32 j, b;

	core->active = 0;
	core->weights = 0;
	core->qlen = 0;
	core->memory = 0;
	for (j = 0; j < core->jobs; j++) {
		struct mercury_job *job = &core->job[j];

		job->words = 0;
		memset(job->occupied, 0, sizeof(job->occupied));
		job->qlen = 0;
		job->memory = 0;
		job->heap_len = 0;
		job->credit = 0;
		for (b = 0; b < core->bands; b++)
			mercury_band_empty(&job->bands[b]);
	}
}

/* --- Between jobs: shares ------------------------------------------------ */

/* The user may have something to send. */
void mercury_core_wake(struct mercury_core *core, u32 user)
{
	if (core->active & BIT_ULL(user))
		return;
	core->active |= BIT_ULL(user);
	if (user != MERCURY_DEFAULT)
		core->weights += core->job[user].weight;
	if (core->vtime[user] - core->vnow > MERCURY_MAX_LEAD)
		core->vtime[user] = core->vnow;
}

/* The user has nothing to send now. */
void mercury_core_sleep(struct mercury_core *core, u32 user)
{
	if (!(core->active & BIT_ULL(user)))
		return;
	core->active &= ~BIT_ULL(user);
	if (user != MERCURY_DEFAULT)
		core->weights -= core->job[user].weight;
}

/* The active user that is furthest behind its share, or -1 if none is active. */
int mercury_core_next(const struct mercury_core *core)
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

/* What a job pays for a packet, in virtual time. */
static u64 mercury_job_cost(const struct mercury_job *job, u32 bytes)
{
	return ((u64)bytes * job->inverse) >> (MERCURY_INVERSE_SHIFT - MERCURY_BYTE_SHIFT);
}

/*
 * Per byte, the default class pays what the active jobs pay for a byte in all,
 * times (100 - default_share) / default_share. Its small packets beside heavy
 * jobs cost less than 1: what the division leaves over is kept.
 */
static u64 mercury_default_cost(struct mercury_core *core, u32 bytes)
{
	u64 cost = ((u64)bytes << MERCURY_BYTE_SHIFT) * (100 - core->default_share);

	return div_u64_rem(cost + core->remainder,
			   core->default_share * max(core->weights, 1U), &core->remainder);
}

/* The user sends a packet. */
void mercury_core_charge(struct mercury_core *core, u32 user, u32 bytes)
{
	core->vnow = core->vtime[user];
	if (user == MERCURY_DEFAULT)
		core->vtime[user] += mercury_default_cost(core, bytes);
	else
		core->vtime[user] += mercury_job_cost(&core->job[user], bytes);
}

void mercury_job_set_weight(struct mercury_core *core, u32 j, u32 weight)
{
	struct mercury_job *job = &core->job[j];

	if (core->active & BIT_ULL(j))
		core->weights += weight - job->weight;
	mercury_job_set_inverse(job, weight);
}

/* --- Within a job: the heap of due times --------------------------------- */

static void mercury_heap_set(struct mercury_job *job, u32 at, struct mercury_heap_entry entry)
{
	job->heap[at] = entry;
	job->bands[entry.band].heap_at = at + 1;
}

static void mercury_heap_up(struct mercury_job *job, u32 at, struct mercury_heap_entry entry)
{
	while (at) {
		u32 parent = (at - 1) / 2;

		if (job->heap[parent].due <= entry.due)
			break;
		mercury_heap_set(job, at, job->heap[parent]);
		at = parent;
	}
	mercury_heap_set(job, at, entry);
}

static void mercury_heap_down(struct mercury_job *job, struct mercury_heap_entry entry)
{
	u32 at = 0, child;

	while ((child = 2 * at + 1) < job->heap_len) {
		if (child + 1 < job->heap_len &&
		    job->heap[child + 1].due < job->heap[child].due)
			child++;
		if (job->heap[child].due >= entry.due)
			break;
		mercury_heap_set(job, at, job->heap[child]);
		at = child;
	}
	mercury_heap_set(job, at, entry);
}

static void mercury_heap_pop(struct mercury_job *job)
{
	job->bands[job->heap[0].band].heap_at = 0;
	if (--job->heap_len)
		mercury_heap_down(job, job->heap[job->heap_len]);
}

/* The head of a band is due at this time. An entry that is too early may stay. */
static void mercury_band_set_due(struct mercury_job *job, u32 b, u64 due)
{
	struct mercury_band *band = &job->bands[b];
	struct mercury_heap_entry entry = { .due = due, .band = b };

	band->due = due;
	if (band->heap_at) {
		if (due < job->heap[band->heap_at - 1].due)
			mercury_heap_up(job, band->heap_at - 1, entry);
	} else if (due != MERCURY_TIME_NONE) {
		mercury_heap_up(job, job->heap_len++, entry);
	}
}

/* Whether a band's head is overdue; the one that was due first. */
static bool mercury_job_overdue(struct mercury_job *job, u64 now, u32 *band)
{
	while (job->heap_len && job->heap[0].due <= now) {
		struct mercury_heap_entry entry = job->heap[0];
		u64 due = job->bands[entry.band].due;

		if (due == entry.due) {
			*band = entry.band;
			return true;
		}
		if (due == MERCURY_TIME_NONE) {
			mercury_heap_pop(job);
		} else {
			entry.due = due;
			mercury_heap_down(job, entry);
		}
	}
	return false;
}

/* --- Within a job: bands ------------------------------------------------- */

static u32 mercury_job_first(const struct mercury_job *job)
{
	u32 word = __ffs(job->words);

	return word * BITS_PER_LONG + __ffs(job->occupied[word]);
}

/* The least urgent band of a job that has packets. */
u32 mercury_job_last(const struct mercury_job *job)
{
	u32 word = __fls(job->words);

	return word * BITS_PER_LONG + __fls(job->occupied[word]);
}

/*
 * The band of a job with packets that sends next: the first, or one that is
 * overdue, while the job's budget for that lasts.
 */
u32 mercury_job_next(const struct mercury_core *core, struct mercury_job *job, u64 now)
{
	u32 band;

	if (core->rescue && job->credit >= 0 && mercury_job_overdue(job, now, &band))
		return band;
	return mercury_job_first(job);
}

/* A packet was queued at the tail of its band. due: as if it were the head. */
void mercury_core_put(struct mercury_core *core, struct mercury_place at,
		      struct mercury_size size, u64 due)
{
	struct mercury_job *job = &core->job[at.job];
	struct mercury_band *band = &job->bands[at.band];

	if (!job->qlen++)
		mercury_core_wake(core, at.job);
	if (!band->qlen++) {
		u32 word = at.band / BITS_PER_LONG;

		job->occupied[word] |= BIT(at.band % BITS_PER_LONG);
		job->words |= BIT(word);
		mercury_band_set_due(job, at.band, due);
	}
	band->backlog += size.bytes;
	job->memory += size.truesize;
	core->qlen++;
	core->memory += size.truesize;
	if (core->memory > core->memory_peak)
		core->memory_peak = core->memory;
}

/* A packet is gone from the tail of its band. */
void mercury_core_drop(struct mercury_core *core, struct mercury_place at,
		       struct mercury_size size)
{
	struct mercury_job *job = &core->job[at.job];
	struct mercury_band *band = &job->bands[at.band];

	core->memory -= size.truesize;
	core->qlen--;
	job->memory -= size.truesize;
	band->backlog -= size.bytes;
	if (!--band->qlen) {
		u32 word = at.band / BITS_PER_LONG;

		band->due = MERCURY_TIME_NONE;
		job->occupied[word] &= ~BIT(at.band % BITS_PER_LONG);
		if (!job->occupied[word])
			job->words &= ~BIT(word);
	}
	if (!--job->qlen)
		mercury_core_sleep(core, at.job);
}

/* The head of its band leaves. next_due: of the new head, if there is one. */
void mercury_core_take(struct mercury_core *core, struct mercury_place at,
		       struct mercury_size size, u64 next_due)
{
	mercury_core_drop(core, at, size);
	if (mercury_core_band(core, at)->qlen)
		mercury_band_set_due(&core->job[at.job], at.band, next_due);
}

/* The deadline of a band with packets has changed, and so its head is due then. */
void mercury_core_head_due(struct mercury_core *core, struct mercury_place at, u64 due)
{
	mercury_band_set_due(&core->job[at.job], at.band, due);
}

/*
 * The job that must give up a packet when limit (packets, or bytes of truesize)
 * is exceeded: the one that holds most beyond its share of the limit.
 */
int mercury_core_victim(const struct mercury_core *core, u64 limit, bool by_memory)
{
	u64 left = core->active & ~BIT_ULL(MERCURY_DEFAULT);
	s64 most = S64_MIN;
	int victim = -1;

	for (; left; left &= left - 1) {
		u32 j = __ffs64(left);
		const struct mercury_job *job = &core->job[j];
		u64 share = div_u64(limit * job->weight, core->weights);
		s64 excess = (by_memory ? job->memory : job->qlen) - share;

		if (excess > most) {
			most = excess;
			victim = j;
		}
	}
	return victim;
}

/* --- Counting ------------------------------------------------------------ */

/*
 * Count a packet that is about to leave the head of its band, and settle the
 * job's rescue budget. Call it before mercury_core_take().
 */
void mercury_core_sent(struct mercury_core *core, struct mercury_place at, u32 bytes,
		       u64 enqueued, u64 now)
{
	struct mercury_job *job = &core->job[at.job];
	struct mercury_band *band = &job->bands[at.band];
	struct mercury_counters *count = &band->count;
	u32 bucket = fls64((now - enqueued) >> MERCURY_SOJOURN_SHIFT);

	count->packets++;
	count->bytes += bytes;
	count->sojourn[min_t(u32, bucket, MERCURY_SOJOURN_BUCKETS - 1)]++;

	job->credit = min(job->credit + (s64)bytes * core->rescue, MERCURY_CREDIT_MAX);
	if (at.band != mercury_job_first(job)) {
		job->credit -= 100LL * bytes;
		count->rescued++;
		count->rescued_bytes += bytes;
	}
	if (band->due == MERCURY_TIME_NONE)
		return;
	if (now <= band->due) {
		count->met++;
	} else {
		u64 late = now - band->due;

		count->missed++;
		count->lateness += late;
		count->lateness_max = max(count->lateness_max, late);
	}
}
