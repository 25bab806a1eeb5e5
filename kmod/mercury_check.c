// SPDX-License-Identifier: GPL-2.0
/*
 * The self-check of sch_mercury: what is kept twice must agree, counts with
 * what they count. A kernel with CONFIG_DEBUG_NET says so if it does not.
 */
#include <linux/bug.h>
#include <linux/lockdep.h>
#include <linux/skbuff.h>
#include <net/sch_generic.h>

#include "mercury_check.h"
#include "mercury_core.h"

#ifdef CONFIG_DEBUG_NET

struct mercury_sums {
	u64 memory;
	u32 qlen;
};

#define MERCURY_AGREE(condition, what, job, band)                                       \
	WARN_ONCE(!(condition), "sch_mercury: job %u, band %u: " what "\n", job, band)

/* The packets of a band, one by one. */
static struct mercury_sums mercury_check_band(const struct mercury_job *job, u32 b)
{
	const struct mercury_band *band = &job->bands[b];
	struct mercury_sums sums = {};
	const struct sk_buff *skb;
	u64 bytes = 0;

	list_for_each_entry(skb, &band->queue, list) {
		bytes += qdisc_skb_cb(skb)->pkt_len;
		sums.memory += skb->truesize;
		sums.qlen++;
	}
	MERCURY_AGREE(band->qlen == sums.qlen, "qlen is not the number of packets",
		      job->number, b);
	MERCURY_AGREE(band->backlog == bytes, "backlog is not the sum of bytes",
		      job->number, b);
	MERCURY_AGREE(!!band->qlen == test_bit(b, job->occupied),
		      "the bitmap does not tell whether it is occupied", job->number, b);
	MERCURY_AGREE(band->heap_due <= band->due, "the heap has it later than it is due",
		      job->number, b);
	MERCURY_AGREE(band->heap_due == MERCURY_TIME_NONE ||
		      (band->heap_at < job->heap_len && job->heap[band->heap_at].band == b &&
		       job->heap[band->heap_at].due == band->heap_due),
		      "its place in the heap is another's", job->number, b);
	return sums;
}

static void mercury_check_heap(const struct mercury_job *job)
{
	u32 i;

	for (i = 1; i < job->heap_len; i++)
		MERCURY_AGREE(job->heap[(i - 1) / 2].due <= job->heap[i].due,
			      "the heap is out of order", job->number, job->heap[i].band);
}

static struct mercury_sums mercury_check_job(const struct mercury_core *core,
					     const struct mercury_job *job)
{
	struct mercury_sums sums = {}, of_band;
	u32 b, w;

	for (b = 0; b < core->bands; b++) {
		of_band = mercury_check_band(job, b);
		sums.memory += of_band.memory;
		sums.qlen += of_band.qlen;
	}
	for (w = 0; w < MERCURY_WORDS; w++)
		MERCURY_AGREE(!!job->occupied[w] == !!(job->words & BIT(w)),
			      "the upper bitmap differs from the lower", job->number,
			      w * BITS_PER_LONG);
	MERCURY_AGREE(job->qlen == sums.qlen, "the job's qlen is not that of its bands",
		      job->number, 0);
	MERCURY_AGREE(job->memory == sums.memory, "the job's memory is not that of its packets",
		      job->number, 0);
	MERCURY_AGREE(!!job->qlen == !!(core->active & BIT_ULL(job->number)),
		      "it is active without packets, or has some and is not", job->number, 0);
	mercury_check_heap(job);
	return sums;
}

/* What must hold of a core whenever nobody is in the middle of changing it. */
void mercury_check_core(const struct mercury_core *core)
{
	struct mercury_sums sums = {}, of_job;
	u32 j, weights = 0;

	for (j = 0; j < core->jobs; j++) {
		of_job = mercury_check_job(core, &core->job[j]);
		sums.memory += of_job.memory;
		sums.qlen += of_job.qlen;
		if (core->active & BIT_ULL(j))
			weights += core->job[j].weight;
	}
	MERCURY_AGREE(core->qlen == sums.qlen, "qlen is not that of the jobs", core->jobs, 0);
	MERCURY_AGREE(core->memory == sums.memory, "memory is not that of the jobs",
		      core->jobs, 0);
	MERCURY_AGREE(core->weights == weights, "weights are not those of the active jobs",
		      core->jobs, 0);
}

/* The same at a place that must hold the lock of packets and settings. */
void mercury_check_locked(struct Qdisc *sch, const struct mercury_core *core)
{
	lockdep_assert_held(qdisc_root_sleeping_lock(sch));
	mercury_check_core(core);
}

#endif /* CONFIG_DEBUG_NET */
