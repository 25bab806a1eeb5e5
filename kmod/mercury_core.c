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
#include <linux/math64.h>
#include <linux/string.h>

#include "mercury_core.h"

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
	band->heap_due = MERCURY_TIME_NONE;
	band->backlog = 0;
	band->qlen = 0;
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

		job->number = j;
		job->bands = &band[j * bands];
		job->heap = &heap[j * bands];
		mercury_job_set_inverse(job, MERCURY_WEIGHT_DEFAULT);
		for (b = 0; b < bands; b++) {
			mercury_band_empty(&job->bands[b]);
			job->bands[b].deadline = MERCURY_DEADLINE_DEFAULT;
			job->bands[b].number = b;
		}
	}
}

void mercury_count_add(struct mercury_counters *to, const struct mercury_counters *from)
{
	u32 i;

	to->segments += from->segments;
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
		to->sent = from->sent;
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
		job->sent = 0;
		for (b = 0; b < core->bands; b++)
			mercury_band_empty(&job->bands[b]);
	}
}

/* --- Between jobs: shares ------------------------------------------------ */

/*
 * What the default class pays for a packet, in virtual time: for a byte, what
 * the active jobs pay for one in all, times (100 - default_share) /
 * default_share. A small packet beside heavy jobs costs less than 1: what the
 * division leaves over is kept.
 */
u64 mercury_default_cost(struct mercury_core *core, u32 bytes)
{
	u64 cost = ((u64)bytes << MERCURY_BYTE_SHIFT) * (100 - core->default_share);

	return div_u64_rem(cost + core->remainder,
			   core->default_share * max(core->weights, 1U), &core->remainder);
}

/* What has been sent so far counts at the old rate. */
void mercury_core_set_rescue(struct mercury_core *core, u32 rescue)
{
	u32 j;

	for (j = 0; j < core->jobs; j++)
		mercury_job_credit(core, &core->job[j]);
	core->rescue = rescue;
}

void mercury_job_set_weight(struct mercury_core *core, struct mercury_job *job, u32 weight)
{
	if (core->active & BIT_ULL(job->number))
		core->weights += weight - job->weight;
	mercury_job_set_inverse(job, weight);
}

/*
 * The job that must give up a packet when limit (packets, or bytes of truesize)
 * is exceeded: the one that holds most beyond its share of the limit.
 */
struct mercury_job *mercury_core_victim(struct mercury_core *core, u64 limit, bool by_memory)
{
	u64 left = core->active & ~BIT_ULL(MERCURY_DEFAULT);
	struct mercury_job *victim = NULL;
	s64 most = S64_MIN;

	for (; left; left &= left - 1) {
		struct mercury_job *job = &core->job[__ffs64(left)];
		u64 share = div_u64(limit * job->weight, core->weights);
		s64 excess = (by_memory ? job->memory : job->qlen) - share;

		if (excess > most) {
			most = excess;
			victim = job;
		}
	}
	return victim;
}

/* --- Within a job: the heap of due times --------------------------------- */

static void mercury_heap_set(struct mercury_job *job, u32 at, struct mercury_heap_entry entry)
{
	job->heap[at] = entry;
	job->bands[entry.band].heap_at = at;
	job->bands[entry.band].heap_due = entry.due;
}

/* Move entries down, from this place towards the root, until the new one fits. */
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

/* Move entries up, from the root, until the new one fits in place of the root. */
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
	job->bands[job->heap[0].band].heap_due = MERCURY_TIME_NONE;
	if (--job->heap_len)
		mercury_heap_down(job, job->heap[job->heap_len]);
}

/* A band is due earlier than the heap has it, or than never. */
void mercury_heap_advance(struct mercury_job *job, struct mercury_band *band, u64 due)
{
	struct mercury_heap_entry entry = { .due = due, .band = band->number };
	bool is_new = band->heap_due == MERCURY_TIME_NONE;

	mercury_heap_up(job, is_new ? job->heap_len++ : band->heap_at, entry);
}

/* What the job may rescue now, if it is not negative. */
s64 mercury_job_credit(const struct mercury_core *core, struct mercury_job *job)
{
	u64 sent = min_t(u64, job->sent, 1ULL << 40); /* more makes no difference */

	job->sent = 0;
	job->credit = min_t(s64, job->credit + (s64)(sent * core->rescue), MERCURY_CREDIT_MAX);
	return job->credit;
}

/* The band whose head is overdue for longest, or NULL. */
struct mercury_band *mercury_job_overdue(struct mercury_job *job, u64 now)
{
	while (job->heap_len && job->heap[0].due <= now) {
		struct mercury_heap_entry entry = job->heap[0];
		struct mercury_band *band = &job->bands[entry.band];

		if (band->due == entry.due)
			return band;
		if (band->due == MERCURY_TIME_NONE) {
			mercury_heap_pop(job);
		} else {
			entry.due = band->due;
			mercury_heap_down(job, entry);
		}
	}
	return NULL;
}
