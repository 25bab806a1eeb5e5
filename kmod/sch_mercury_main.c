// SPDX-License-Identifier: GPL-2.0
/*
 * sch_mercury: sends first what the next training step needs first.
 *
 * In data-parallel training the gradients of the last layers are ready first
 * and needed last. This qdisc sends the layers of a job in the order in which
 * the next forward pass needs them, packet by packet, and keeps jobs and other
 * traffic apart by shares of the link.
 *
 *   packet --classify--> job, layer --> band FIFO --+
 *               |                                   +--> shares --> device
 *               +--> unmarked --> child qdisc ------+
 *
 * The order itself is in mercury_core.c; this file is what the kernel sees of
 * it: packets, limits, netlink, classes and statistics. uapi/mercury.h is the
 * contract with user space.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "mercury_check.h"
#include "mercury_compat.h"
#include "mercury_core.h"

/*
 * The shaper makes up for at most this much time that a late timer has lost,
 * and only while packets are waiting.
 */
#define MERCURY_CATCH_UP_NS (1 * NSEC_PER_MSEC)

/* What netlink can set; checked before any of it is used. */
struct mercury_config {
	u64 rate; /* bytes a second; 0: no shaping */
	u64 ce_threshold; /* ns, or MERCURY_TIME_NONE */
	u32 limit; /* packets */
	u32 memory_limit; /* bytes of truesize */
	u32 jobs;
	u32 bands;
	u32 default_share;
	u32 rescue;
	u32 mask;
	u32 job_mask;
	u8 key; /* enum mercury_key */
	u8 split_gso; /* enum mercury_split */
	u8 ack_first;
};

struct mercury_sched {
	/* Read for every packet, written by change only. */
	struct mercury_core *core;
	struct tcf_proto __rcu *filter_list;
	struct Qdisc *child; /* of the default class */
	u32 major; /* of our classids; one that no classid has, if we have none */
	struct mercury_config config;
	u8 mask_shift;
	u8 job_shift;
	bool split; /* GSO packets */

	/*
	 * The only packet that there is, in no band yet: one that finds all
	 * empty, and then finds the link free, is spared the bands. Whoever
	 * looks at the bands calls mercury_queue_only() first.
	 */
	struct sk_buff *only;

	/* The shaper. */
	struct psched_ratecfg rate;
	u64 next_send; /* ns, when the link is free again */
	bool was_idle; /* the last packet left nothing behind */
	struct qdisc_watchdog watchdog;

	struct tcf_block *block;
	u64 drop_filter; /* packets */
	u64 drop_gso;
	u64 gso_split;
};

/* What a packet asks for, before jobs and bands bound it. */
struct mercury_ask {
	u32 layer; /* from 1, at most 16 bits; 0: the default class */
	u32 job; /* at most 8 bits */
};

/* Which clock skb->tstamp is a deadline of. */
enum mercury_clock {
	MERCURY_CLOCK_NONE, /* of none: it is no deadline */
	MERCURY_CLOCK_MONOTONIC,
	MERCURY_CLOCK_REALTIME,
	MERCURY_CLOCK_BOOTTIME,
	MERCURY_CLOCK_TAI,
};

/* Where a packet is, or is to be, queued. */
struct mercury_place {
	struct mercury_job *job;
	struct mercury_band *band;
};

struct mercury_skb_cb {
	u64 enqueued; /* ns, monotonic */
	u16 layer; /* asked for */
	u8 job;
	u8 clock; /* enum mercury_clock */
};

static struct mercury_skb_cb *mercury_cb(const struct sk_buff *skb)
{
	qdisc_cb_private_validate(skb, sizeof(struct mercury_skb_cb));
	return (struct mercury_skb_cb *)qdisc_skb_cb(skb)->data;
}

static struct mercury_size mercury_skb_size(const struct sk_buff *skb)
{
	return (struct mercury_size){ .bytes = qdisc_pkt_len(skb), .truesize = skb->truesize };
}

/* The monotonic time of a SO_TXTIME deadline. */
static noinline u64 mercury_txtime(const struct sk_buff *skb, u8 clock)
{
	ktime_t offset = 0;

	switch (clock) {
	case MERCURY_CLOCK_REALTIME:
		offset = ktime_mono_to_any(0, TK_OFFS_REAL);
		break;
	case MERCURY_CLOCK_BOOTTIME:
		offset = ktime_mono_to_any(0, TK_OFFS_BOOT);
		break;
	case MERCURY_CLOCK_TAI:
		offset = ktime_mono_to_any(0, TK_OFFS_TAI);
		break;
	}
	return max_t(s64, ktime_sub(skb->tstamp, offset), 0);
}

/* When a packet of this band is overdue. */
static u64 mercury_skb_due(const struct sk_buff *skb, const struct mercury_band *band)
{
	const struct mercury_skb_cb *cb = mercury_cb(skb);

	if (unlikely(cb->clock))
		return mercury_txtime(skb, cb->clock);
	if (unlikely(band->deadline == MERCURY_TIME_NONE))
		return MERCURY_TIME_NONE;
	return cb->enqueued + band->deadline;
}

static struct sk_buff *mercury_band_head(const struct mercury_band *band)
{
	return list_first_entry(&band->queue, struct sk_buff, list);
}

/*
 * As the queues of struct sk_buff_head do it: list.h checks each step in the
 * kernels of distributions, which costs 40 instructions a packet.
 */
static void mercury_link(struct sk_buff *skb, struct mercury_band *band)
{
	struct list_head *last = band->queue.prev;

	skb->list.next = &band->queue;
	skb->list.prev = last;
	last->next = &skb->list;
	band->queue.prev = &skb->list;
}

static void mercury_unlink(struct sk_buff *skb)
{
	struct list_head *next = skb->list.next, *prev = skb->list.prev;

	next->prev = prev;
	prev->next = next;
	/* Lists of segments hang on these two: leave nothing behind. */
	skb->next = NULL;
	skb->prev = NULL;
}

static struct mercury_place mercury_place_of(struct mercury_core *core, struct mercury_ask ask)
{
	struct mercury_job *job = &core->job[min(ask.job, core->jobs - 1)];

	/* GCC would work it out anew wherever it is used: 20 instructions a packet. */
	OPTIMIZER_HIDE_VAR(job);
	return (struct mercury_place){ job, &job->bands[min(ask.layer, core->bands) - 1] };
}

/* The place of a packet that has been here before. */
static struct mercury_place mercury_place_again(struct mercury_core *core,
						const struct sk_buff *skb)
{
	const struct mercury_skb_cb *cb = mercury_cb(skb);

	return mercury_place_of(core, (struct mercury_ask){ .layer = cb->layer, .job = cb->job });
}

/* Queue a packet at the tail of its band. */
static __always_inline void mercury_put(struct mercury_core *core, struct sk_buff *skb,
					struct mercury_place at)
{
	mercury_link(skb, at.band);
	if (mercury_core_put(core, at.job, at.band, mercury_skb_size(skb)))
		mercury_band_set_due(at.job, at.band, mercury_skb_due(skb, at.band));
}

static noinline void mercury_put_only(struct mercury_sched *q)
{
	mercury_put(q->core, q->only, mercury_place_again(q->core, q->only));
	q->only = NULL;
}

/* Put the only packet, if there is one, where it would be without this shortcut. */
static void mercury_queue_only(struct mercury_sched *q)
{
	if (q->only)
		mercury_put_only(q);
}

/* Add to (or, negative, take from) what the qdisc says it holds. */
static void mercury_hold(struct Qdisc *sch, int packets, int bytes)
{
	WRITE_ONCE(sch->q.qlen, sch->q.qlen + packets);
	WRITE_ONCE(sch->qstats.backlog, sch->qstats.backlog + bytes);
}

/* --- Classify ------------------------------------------------------------ */

static noinline u32 mercury_dscp(const struct sk_buff *skb)
{
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} buffer;
	const void *header;

	switch (skb_protocol(skb, true)) {
	case htons(ETH_P_IP):
		header = skb_header_pointer(skb, skb_network_offset(skb), sizeof(buffer.v4),
					    &buffer.v4);
		return header ? ipv4_get_dsfield(header) >> 2 : 0;
	case htons(ETH_P_IPV6):
		header = skb_header_pointer(skb, skb_network_offset(skb), sizeof(buffer.v6),
					    &buffer.v6);
		return header ? ipv6_get_dsfield(header) >> 2 : 0;
	default:
		return 0;
	}
}

static u32 mercury_key_of(const struct mercury_config *config, const struct sk_buff *skb)
{
	switch (config->key) {
	case MERCURY_KEY_PRIORITY:
		return skb->priority;
	case MERCURY_KEY_DSCP:
		return mercury_dscp(skb);
	default:
		return skb->mark;
	}
}

static __always_inline struct mercury_ask mercury_ask_key(const struct mercury_sched *q,
							  const struct sk_buff *skb)
{
	u32 key = mercury_key_of(&q->config, skb);
	u32 layer = (key & q->config.mask) >> q->mask_shift;
	u32 job = (key & q->config.job_mask) >> q->job_shift;

	return (struct mercury_ask){ .layer = layer, .job = job };
}

/* Is it the minor number of a job? Then which? */
static bool mercury_minor_is_job(u32 minor, u32 *job)
{
	*job = minor - MERCURY_MINOR_JOB(0);
	return *job < MERCURY_JOBS_MAX;
}

/* Is it the minor number of a band? Then of which job, and which? */
static bool mercury_minor_is_band(u32 minor, u32 *job, u32 *band)
{
	*job = (minor - 1) / MERCURY_BANDS_MAX;
	*band = (minor - 1) % MERCURY_BANDS_MAX;
	return minor && *job < MERCURY_JOBS_MAX;
}

/* What a classid asks for. One of a job leaves the layer to the key. */
static struct mercury_ask mercury_ask_class(const struct mercury_sched *q,
					    const struct sk_buff *skb, u32 minor)
{
	struct mercury_ask ask = {};
	u32 job, band;

	if (minor == MERCURY_MINOR_DEFAULT)
		return ask;
	if (mercury_minor_is_band(minor, &job, &band)) {
		ask.job = job;
		ask.layer = band + 1;
		return ask;
	}
	ask = mercury_ask_key(q, skb);
	if (mercury_minor_is_job(minor, &job)) {
		ask.job = job;
		if (!ask.layer)
			ask.layer = MERCURY_BANDS_MAX;
	}
	return ask;
}

/*
 * Says what a classid or a filter asks for, or, with false, that a filter has
 * seen to the packet: then *ret is what enqueue returns.
 */
static bool mercury_classify(struct sk_buff *skb, struct Qdisc *sch, struct mercury_ask *ask,
			     struct sk_buff **to_free, int *ret)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct tcf_result res = {};

	if (TC_H_MAJ(skb->priority) == q->major) {
		*ask = mercury_ask_class(q, skb, TC_H_MIN(skb->priority));
		return true;
	}
	switch (mercury_tcf_classify(skb, rcu_dereference_bh(q->filter_list), &res)) {
	case TC_ACT_SHOT:
		q->drop_filter++;
		qdisc_qstats_drop(sch);
		__qdisc_drop(skb, to_free);
		*ret = NET_XMIT_SUCCESS | __NET_XMIT_BYPASS;
		return false;
	case TC_ACT_STOLEN:
	case TC_ACT_QUEUED:
	case TC_ACT_TRAP:
		__qdisc_drop(skb, to_free);
		fallthrough;
	case TC_ACT_CONSUMED: /* it is an action's now, as a fragment is of ct's */
		*ret = NET_XMIT_SUCCESS | __NET_XMIT_STOLEN;
		return false;
	case TC_ACT_UNSPEC:
		*ask = mercury_ask_key(q, skb);
		return true;
	default:
		*ask = mercury_ask_class(q, skb, TC_H_MIN(res.classid));
		return true;
	}
}

/*
 * Whether the packet's own time is its deadline, and by which clock. TCP is
 * left out: there skb->tstamp is when pacing lets the packet go.
 */
static noinline u8 mercury_txtime_clock(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	if (!sk || !sk_fullsock(sk) || sk->sk_protocol == IPPROTO_TCP ||
	    !sock_flag(sk, SOCK_TXTIME) || !sk->sk_txtime_deadline_mode)
		return MERCURY_CLOCK_NONE;
	switch (sk->sk_clockid) {
	case CLOCK_MONOTONIC:
		return MERCURY_CLOCK_MONOTONIC;
	case CLOCK_REALTIME:
		return MERCURY_CLOCK_REALTIME;
	case CLOCK_BOOTTIME:
		return MERCURY_CLOCK_BOOTTIME;
	case CLOCK_TAI:
		return MERCURY_CLOCK_TAI;
	default:
		return MERCURY_CLOCK_NONE;
	}
}

/* --- Enqueue ------------------------------------------------------------- */

/* Packets that a call has queued, less those that it has pushed out. */
struct mercury_tally {
	int packets;
	int bytes;
};

/* Take a packet from the tail of a band, for the caller to free. */
static struct sk_buff *mercury_cut_tail(struct Qdisc *sch, struct mercury_place at)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct sk_buff *skb = list_last_entry(&at.band->queue, struct sk_buff, list);

	mercury_unlink(skb);
	mercury_core_drop(q->core, at.job, at.band, mercury_skb_size(skb));
	mercury_hold(sch, -1, -(int)qdisc_pkt_len(skb));
	return skb;
}

/* Whether a job, or all of them, hold more than they may. */
static bool mercury_is_over_limit(const struct mercury_sched *q, const struct mercury_job *job)
{
	return q->core->qlen > q->config.limit || q->core->memory > q->config.memory_limit ||
	       (job->limit && job->qlen > job->limit);
}

/*
 * Push out one packet of those that are too many: from the tail of the least
 * urgent band of the job that holds most beyond its share, or else of the job
 * that has just received a packet and is over its own limit.
 */
static struct sk_buff *mercury_push_out(struct Qdisc *sch, struct mercury_job *receiver,
					struct mercury_place *from)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_core *core = q->core;
	bool by_memory = core->memory > q->config.memory_limit;

	if (by_memory)
		from->job = mercury_core_victim(core, q->config.memory_limit, true);
	else if (core->qlen > q->config.limit)
		from->job = mercury_core_victim(core, q->config.limit, false);
	else
		from->job = receiver;
	from->band = mercury_job_last(from->job);
	if (by_memory)
		from->band->count.drop_memory++;
	else
		from->band->count.drop_limit++;
	return mercury_cut_tail(sch, *from);
}

/*
 * The parents handed over one packet of len bytes, and will count it if they
 * are told success. Make what they count match what was really done.
 */
static int mercury_settle(struct Qdisc *sch, int ret, u32 len, struct mercury_tally tally)
{
	if (ret == NET_XMIT_SUCCESS) {
		tally.packets -= 1;
		tally.bytes -= len;
	}
	if (tally.packets || tally.bytes)
		qdisc_tree_reduce_backlog(sch, -tally.packets, -tally.bytes);
	return ret;
}

/*
 * Packets of a tally, from one of len bytes, were queued at the tail of a band:
 * push out what is too many now.
 */
static noinline int mercury_trim(struct Qdisc *sch, struct mercury_place at, u32 len,
				 struct mercury_tally tally, struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);
	u32 left = tally.packets;
	struct mercury_place from;
	struct sk_buff *skb;

	while (mercury_is_over_limit(q, at.job)) {
		skb = mercury_push_out(sch, at.job, &from);
		tally.packets--;
		tally.bytes -= qdisc_pkt_len(skb);
		/* A tail of the same band is one of ours, while there are any. */
		if (left && from.band == at.band)
			left--;
		mercury_drop_overlimit(skb, sch, to_free);
	}
	return mercury_settle(sch, left ? NET_XMIT_SUCCESS : NET_XMIT_DROP, len, tally);
}

/* Write down when a packet came and what it asked for. */
static void mercury_stamp(struct sk_buff *skb, struct mercury_ask ask)
{
	struct mercury_skb_cb *cb = mercury_cb(skb);

	cb->enqueued = ktime_get_ns();
	cb->layer = ask.layer;
	cb->job = ask.job;
	cb->clock = skb->tstamp ? mercury_txtime_clock(skb) : MERCURY_CLOCK_NONE;
}

/* Queue a stamped packet. False: it was dropped, the band is full. */
static __always_inline bool mercury_append(struct sk_buff *skb, struct Qdisc *sch,
					   struct mercury_place at, struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);

	if (unlikely(at.band->limit && at.band->qlen >= at.band->limit)) {
		at.band->count.drop_limit++;
		mercury_drop_overlimit(skb, sch, to_free);
		return false;
	}
	mercury_put(q->core, skb, at);
	mercury_hold(sch, 1, qdisc_pkt_len(skb));
	return true;
}

static __always_inline int mercury_enqueue_band(struct sk_buff *skb, struct Qdisc *sch,
						struct mercury_ask ask, struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_place at;

	mercury_stamp(skb, ask);
	if (!sch->q.qlen) {
		q->only = skb;
		mercury_hold(sch, 1, qdisc_pkt_len(skb));
		return NET_XMIT_SUCCESS;
	}
	mercury_queue_only(q);
	at = mercury_place_of(q->core, ask);
	if (unlikely(!mercury_append(skb, sch, at, to_free)))
		return NET_XMIT_DROP;
	if (unlikely(mercury_is_over_limit(q, at.job)))
		return mercury_trim(sch, at, qdisc_pkt_len(skb),
				    (struct mercury_tally){ 1, qdisc_pkt_len(skb) }, to_free);
	return NET_XMIT_SUCCESS;
}

/* The default class: only its child knows what it kept. */
static int mercury_enqueue_child(struct sk_buff *skb, struct Qdisc *sch,
				 struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);
	u32 len = qdisc_pkt_len(skb);
	int ret;

	mercury_queue_only(q);
	ret = qdisc_enqueue(skb, q->child, to_free);
	if (ret == NET_XMIT_SUCCESS)
		mercury_hold(sch, 1, len);
	else if (net_xmit_drop_count(ret))
		qdisc_qstats_drop(sch);
	return ret;
}

/*
 * Queue segments where their packet would have gone, and count what was kept.
 * The answer is for the packet as a whole: that it was dropped only if all
 * segments were, or TCP would believe it unsent when a part arrives.
 */
static int mercury_append_segments(struct sk_buff *segments, struct Qdisc *sch,
				   struct mercury_ask ask, struct mercury_place at,
				   struct mercury_tally *tally, struct sk_buff **to_free)
{
	int verdict = NET_XMIT_DROP;
	struct sk_buff *skb, *next;

	skb_list_walk_safe(segments, skb, next) {
		u32 len = skb->len;
		int ret;

		skb_mark_not_on_list(skb);
		mercury_set_pkt_len(skb);
		if (!ask.layer) {
			ret = mercury_enqueue_child(skb, sch, to_free);
		} else {
			mercury_stamp(skb, ask);
			ret = mercury_append(skb, sch, at, to_free) ? NET_XMIT_SUCCESS :
								      NET_XMIT_DROP;
		}
		if (ret == NET_XMIT_SUCCESS) {
			tally->packets++;
			tally->bytes += len;
		}
		/* A child may have dropped another packet and kept this one (CN). */
		if (ret == NET_XMIT_SUCCESS || verdict == NET_XMIT_DROP)
			verdict = ret;
	}
	return verdict;
}

/* A large packet on a slow link would hold up more urgent ones: cut it up. */
static noinline int mercury_enqueue_split(struct sk_buff *skb, struct Qdisc *sch,
					  struct mercury_ask ask, struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);
	netdev_features_t features = netif_skb_features(skb);
	u32 len = qdisc_pkt_len(skb);
	struct mercury_tally tally = {};
	struct mercury_place at = {};
	struct sk_buff *segments;
	int ret;

	segments = skb_gso_segment(skb, features & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(segments)) {
		q->drop_gso++;
		return qdisc_drop(skb, sch, to_free);
	}
	q->gso_split++;
	mercury_queue_only(q);
	if (ask.layer)
		at = mercury_place_of(q->core, ask);
	ret = mercury_append_segments(segments, sch, ask, at, &tally, to_free);
	if (ret == NET_XMIT_DROP)
		kfree_skb(skb);
	else
		consume_skb(skb);
	if (ask.layer && tally.packets)
		return mercury_trim(sch, at, len, tally, to_free);
	return mercury_settle(sch, ret, len, tally);
}

/*
 * A pure ACK may overtake other packets of its job, but none of its own
 * connection: one that waits here with an older acknowledgement number would be
 * refused by the peer once that is a window behind (RFC 5961, 5.2). With
 * nothing but pure ACKs underway, which count 2 bytes each, less is charged to
 * the socket than any packet with data has.
 */
static bool mercury_ack_may_overtake(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	return sk && sk_fullsock(sk) && refcount_read(&sk->sk_wmem_alloc) < SKB_TRUESIZE(0);
}

/* The layer of a pure ACK that asks for this one. */
static noinline u32 mercury_ack_layer(struct mercury_sched *q, const struct sk_buff *skb,
				      struct mercury_ask ask)
{
	if (ask.layer <= 1 || !q->config.ack_first || !mercury_ack_may_overtake(skb))
		return ask.layer;
	mercury_place_of(q->core, ask).job->acks++;
	return 1;
}

static __always_inline int mercury_enqueue_ask(struct sk_buff *skb, struct Qdisc *sch,
					       struct mercury_ask ask, struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);

	if (unlikely(q->split && skb_is_gso(skb)))
		return mercury_enqueue_split(skb, sch, ask, to_free);
	if (ask.layer)
		return mercury_enqueue_band(skb, sch, ask, to_free);
	return mercury_enqueue_child(skb, sch, to_free);
}

static noinline int mercury_enqueue_classified(struct sk_buff *skb, struct Qdisc *sch,
					       struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_ask ask;
	int ret;

	if (!mercury_classify(skb, sch, &ask, to_free, &ret))
		return ret;
	if (skb_is_tcp_pure_ack(skb))
		ask.layer = mercury_ack_layer(q, skb, ask);
	return mercury_enqueue_ask(skb, sch, ask, to_free);
}

static int mercury_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_ask ask;

	if (unlikely(TC_H_MAJ(skb->priority) == q->major || rcu_access_pointer(q->filter_list)))
		return mercury_enqueue_classified(skb, sch, to_free);
	ask = mercury_ask_key(q, skb);
	if (unlikely(skb_is_tcp_pure_ack(skb)))
		ask.layer = mercury_ack_layer(q, skb, ask);
	return mercury_enqueue_ask(skb, sch, ask, to_free);
}

/* --- Dequeue ------------------------------------------------------------- */

/* Whether the shaper lets a packet go now; if not, it has set its timer. */
static bool mercury_link_is_free(struct Qdisc *sch, u64 now)
{
	struct mercury_sched *q = qdisc_priv(sch);

	if (now >= q->next_send)
		return true;
	qdisc_qstats_overlimit(sch);
	qdisc_watchdog_schedule_ns(&q->watchdog, q->next_send);
	return false;
}

/* The link is busy with a packet until next_send. */
static void mercury_link_take(struct mercury_sched *q, u32 len, u64 now)
{
	u64 earliest = q->was_idle ? now : now - MERCURY_CATCH_UP_NS;

	q->next_send = max(q->next_send, earliest) + psched_l2t_ns(&q->rate, len);
}

static noinline void mercury_mark_ce(struct mercury_band *band, struct sk_buff *skb)
{
	if (INET_ECN_set_ce(skb))
		band->count.ce_marks++;
}

/* A packet, which was due then, leaves its band and the qdisc. */
static __always_inline void mercury_send(struct Qdisc *sch, struct mercury_core *core,
					 struct mercury_job *job, struct mercury_band *band,
					 bool rescued, struct sk_buff *skb, u64 due, u64 now)
{
	struct mercury_sched *q = qdisc_priv(sch);
	u64 sojourn = now - mercury_cb(skb)->enqueued;
	u32 len = qdisc_pkt_len(skb), segments = mercury_pkt_segs(skb);

	mercury_job_sent(core, job, band, rescued, len, segments, due, sojourn, now);
	mercury_core_charge(core, job->number, mercury_job_cost(job, len));
	mercury_hold(sch, -1, -(int)len);
	_bstats_update(&sch->bstats, len, segments);
	if (unlikely(sojourn > q->config.ce_threshold))
		mercury_mark_ce(band, skb);
}

static noinline struct sk_buff *mercury_dequeue_only(struct Qdisc *sch, u64 now)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_core *core = q->core;
	struct sk_buff *skb = q->only;
	struct mercury_place at = mercury_place_again(core, skb);

	q->only = NULL;
	mercury_core_catch_up(core, at.job->number);
	mercury_send(sch, core, at.job, at.band, false, skb, mercury_skb_due(skb, at.band), now);
	return skb;
}

/* The next packet of a job that has some. */
static noinline struct sk_buff *mercury_dequeue_job(struct Qdisc *sch, struct mercury_core *core,
						    struct mercury_job *job, u64 now)
{
	struct mercury_pick pick = mercury_job_next(core, job, now);
	struct mercury_band *band = pick.band;
	struct sk_buff *skb = mercury_band_head(band);
	u64 due = band->due;

	mercury_unlink(skb);
	if (mercury_core_drop(core, job, band, mercury_skb_size(skb)))
		mercury_band_set_due(job, band, mercury_skb_due(mercury_band_head(band), band));
	mercury_send(sch, core, job, band, pick.rescued, skb, due, now);
	return skb;
}

static struct sk_buff *mercury_dequeue_child(struct Qdisc *sch)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct sk_buff *skb = qdisc_dequeue_peeked(q->child);
	u32 len;

	if (!skb) {
		/* It holds its packets back, and will wake the device. */
		mercury_core_sleep(q->core, MERCURY_DEFAULT);
		return NULL;
	}
	len = qdisc_pkt_len(skb);
	mercury_core_charge(q->core, MERCURY_DEFAULT, mercury_default_cost(q->core, len));
	mercury_hold(sch, -1, -(int)len);
	qdisc_bstats_update(sch, skb);
	return skb;
}

/* The default class is next: its child may hold back what it has. */
static noinline struct sk_buff *mercury_dequeue_default(struct Qdisc *sch,
							struct mercury_core *core, u64 now)
{
	struct sk_buff *skb = mercury_dequeue_child(sch);
	int user;

	if (skb)
		return skb;
	user = mercury_core_next(core);
	return user < 0 ? NULL : mercury_dequeue_job(sch, core, &core->job[user], now);
}

/* The next packet of whoever is furthest behind its share and has one. */
static struct sk_buff *mercury_dequeue_user(struct Qdisc *sch, u64 now)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_core *core = q->core;
	int user;

	if (q->child->q.qlen)
		mercury_core_wake(core, MERCURY_DEFAULT);
	user = mercury_core_next(core);
	if (user < 0)
		return NULL;
	if (user == MERCURY_DEFAULT)
		return mercury_dequeue_default(sch, core, now);
	return mercury_dequeue_job(sch, core, &core->job[user], now);
}

static noinline struct sk_buff *mercury_dequeue_shaped(struct Qdisc *sch, u64 now)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct sk_buff *skb;

	if (!mercury_link_is_free(sch, now))
		return NULL;
	mercury_queue_only(q);
	skb = mercury_dequeue_user(sch, now);
	if (skb) {
		mercury_link_take(q, qdisc_pkt_len(skb), now);
		q->was_idle = !sch->q.qlen;
	}
	return skb;
}

static struct sk_buff *mercury_dequeue(struct Qdisc *sch)
{
	struct mercury_sched *q = qdisc_priv(sch);
	u64 now;

	/* The kernel asks until there is nothing more: say so without ado. */
	if (!sch->q.qlen)
		return NULL;
	now = ktime_get_ns();
	if (q->config.rate)
		return mercury_dequeue_shaped(sch, now);
	if (q->only)
		return mercury_dequeue_only(sch, now);
	return mercury_dequeue_user(sch, now);
}

/* --- Change -------------------------------------------------------------- */

static const struct nla_policy mercury_deadlines_policy[TCA_MERCURY_DEADLINE_MAX + 1] = {
	[TCA_MERCURY_DEADLINE] = NLA_POLICY_EXACT_LEN(sizeof(struct mercury_deadline)),
};

static const struct nla_policy mercury_policy[TCA_MERCURY_MAX + 1] = {
	[TCA_MERCURY_JOBS] = { .type = NLA_U32 },
	[TCA_MERCURY_BANDS] = { .type = NLA_U32 },
	[TCA_MERCURY_LIMIT] = { .type = NLA_U32 },
	[TCA_MERCURY_MEMORY_LIMIT] = { .type = NLA_U32 },
	[TCA_MERCURY_KEY] = { .type = NLA_U8 },
	[TCA_MERCURY_MASK] = { .type = NLA_U32 },
	[TCA_MERCURY_JOB_MASK] = { .type = NLA_U32 },
	[TCA_MERCURY_DEFAULT_SHARE] = { .type = NLA_U32 },
	[TCA_MERCURY_RESCUE] = { .type = NLA_U32 },
	[TCA_MERCURY_RATE] = { .type = NLA_U64 },
	[TCA_MERCURY_SPLIT_GSO] = { .type = NLA_U8 },
	[TCA_MERCURY_ACK_FIRST] = { .type = NLA_U8 },
	[TCA_MERCURY_CE_THRESHOLD] = { .type = NLA_U64 },
	[TCA_MERCURY_DEADLINES] = NLA_POLICY_NESTED(mercury_deadlines_policy),
};

/* What an option may be: from min to max, or this one other value. */
struct mercury_rule {
	u16 attr;
	u16 offset; /* in struct mercury_config */
	u8 size; /* bytes */
	u64 min;
	u64 max;
	u64 other;
	const char *refusal;
};

#define MERCURY_RULE(_attr, _field, _min, _max, _other, _refusal)           \
	{                                                                   \
		.attr = TCA_MERCURY_##_attr,                                \
		.offset = offsetof(struct mercury_config, _field),          \
		.size = sizeof_field(struct mercury_config, _field),        \
		.min = _min, .max = _max, .other = _other,                  \
		.refusal = "sch_mercury: " _refusal,                        \
	}

static const struct mercury_rule mercury_rules[] = {
	MERCURY_RULE(JOBS, jobs, MERCURY_JOBS_MIN, MERCURY_JOBS_MAX, MERCURY_JOBS_MIN,
		     "jobs must be 1 to 62"),
	MERCURY_RULE(BANDS, bands, MERCURY_BANDS_MIN, MERCURY_BANDS_MAX, MERCURY_BANDS_MIN,
		     "bands must be 2 to 1024"),
	MERCURY_RULE(LIMIT, limit, MERCURY_LIMIT_MIN, MERCURY_LIMIT_MAX, MERCURY_LIMIT_MIN,
		     "limit must be 1 to 2147483647 packets"),
	MERCURY_RULE(MEMORY_LIMIT, memory_limit, MERCURY_MEMORY_MIN, MERCURY_MEMORY_MAX,
		     MERCURY_MEMORY_MIN, "memory_limit must be 1 MiB to 4 GiB - 1"),
	MERCURY_RULE(KEY, key, 0, __MERCURY_KEY_MAX - 1, 0,
		     "key must be mark, priority or dscp"),
	MERCURY_RULE(MASK, mask, 1, U32_MAX, 1, "mask must not be 0"),
	MERCURY_RULE(JOB_MASK, job_mask, 0, U32_MAX, 0, ""),
	MERCURY_RULE(DEFAULT_SHARE, default_share, MERCURY_SHARE_MIN, MERCURY_SHARE_MAX,
		     MERCURY_SHARE_MIN, "default_share must be 1 to 99 per cent"),
	MERCURY_RULE(RESCUE, rescue, MERCURY_RESCUE_MIN, MERCURY_RESCUE_MAX, MERCURY_RESCUE_MIN,
		     "rescue must be 0 to 100 per cent"),
	MERCURY_RULE(RATE, rate, MERCURY_RATE_MIN, MERCURY_RATE_MAX, 0,
		     "rate must be 1 kbit/s to 10 Tbit/s, or 0 for no shaping"),
	MERCURY_RULE(SPLIT_GSO, split_gso, 0, __MERCURY_SPLIT_MAX - 1, 0,
		     "split_gso must be off, on or auto"),
	MERCURY_RULE(ACK_FIRST, ack_first, 0, 1, 0, "ack_first must be 0 or 1"),
	MERCURY_RULE(CE_THRESHOLD, ce_threshold, MERCURY_TIME_MIN, MERCURY_TIME_MAX,
		     MERCURY_TIME_NONE, "ce_threshold must be 1 us to 1 hour, or none"),
};

static int mercury_obey(const struct mercury_rule *rule, const struct nlattr *attr,
			struct mercury_config *config, struct netlink_ext_ack *extack)
{
	void *field = (char *)config + rule->offset;
	u64 value;

	if (rule->size == sizeof(u8))
		value = nla_get_u8(attr);
	else if (rule->size == sizeof(u32))
		value = nla_get_u32(attr);
	else
		value = nla_get_u64(attr);
	if ((value < rule->min || value > rule->max) && value != rule->other)
		return mercury_refuse(extack, attr, rule->refusal);
	if (rule->size == sizeof(u8))
		*(u8 *)field = value;
	else if (rule->size == sizeof(u32))
		*(u32 *)field = value;
	else
		*(u64 *)field = value;
	return 0;
}

/* One run of so many bits at most: then the bit above it is the only one in the sum. */
static bool mercury_is_run(u32 mask, u32 bits)
{
	u64 above = (u64)mask + (mask & -mask);

	return !(above & (above - 1)) && hweight32(mask) <= bits;
}

static int mercury_check_masks(const struct mercury_config *config,
			       struct netlink_ext_ack *extack)
{
	if (!mercury_is_run(config->mask, MERCURY_MASK_BITS)) {
		NL_SET_ERR_MSG_MOD(extack, "mask must be one run of 1 to 16 bits");
		return -EINVAL;
	}
	if (!mercury_is_run(config->job_mask, MERCURY_JOB_MASK_BITS)) {
		NL_SET_ERR_MSG_MOD(extack,
				   "job_mask must be one run of 1 to 8 bits, or 0 for one job");
		return -EINVAL;
	}
	if (config->mask & config->job_mask) {
		NL_SET_ERR_MSG_MOD(extack, "mask and job_mask must not overlap");
		return -EINVAL;
	}
	return 0;
}

static bool mercury_time_is_valid(u64 time)
{
	return time == MERCURY_TIME_NONE || (time >= MERCURY_TIME_MIN && time <= MERCURY_TIME_MAX);
}

static struct mercury_deadline mercury_get_deadline(const struct nlattr *attr)
{
	struct mercury_deadline deadline;

	nla_memcpy(&deadline, attr, sizeof(deadline)); /* may be unaligned */
	return deadline;
}

static int mercury_check_deadlines(const struct nlattr *deadlines,
				   const struct mercury_config *config,
				   struct netlink_ext_ack *extack)
{
	const struct nlattr *attr;
	u32 entries = 0;
	int rest;

	nla_for_each_nested(attr, deadlines, rest) {
		struct mercury_deadline d = mercury_get_deadline(attr);

		if (++entries > MERCURY_DEADLINES_MAX)
			return mercury_refuse(extack, attr,
					      "sch_mercury: more than 64 deadlines in one request");
		if (d.job != MERCURY_EVERY_JOB && d.job >= config->jobs)
			return mercury_refuse(extack, attr,
					      "sch_mercury: deadline of a job that there is not");
		if (d.first > d.last || d.last >= config->bands)
			return mercury_refuse(extack, attr,
					      "sch_mercury: deadline of bands that there are not");
		if (d.pad)
			return mercury_refuse(extack, attr,
					      "sch_mercury: deadline padding must be 0");
		if (!mercury_time_is_valid(d.time))
			return mercury_refuse(extack, attr,
					      "sch_mercury: deadline must be 1 us to 1 hour, or none");
	}
	return 0;
}

/* Check a request against, and write it over, a configuration. */
static int mercury_parse(struct nlattr **tb, struct mercury_config *config,
			 struct netlink_ext_ack *extack)
{
	u32 i;
	int err;

	for (i = 0; i < ARRAY_SIZE(mercury_rules); i++) {
		const struct nlattr *attr = tb[mercury_rules[i].attr];

		err = attr ? mercury_obey(&mercury_rules[i], attr, config, extack) : 0;
		if (err)
			return err;
	}
	err = mercury_check_masks(config, extack);
	if (!err && tb[TCA_MERCURY_DEADLINES])
		err = mercury_check_deadlines(tb[TCA_MERCURY_DEADLINES], config, extack);
	return err;
}

static struct mercury_core *mercury_core_alloc(u32 jobs, u32 bands,
					       struct netlink_ext_ack *extack)
{
	struct mercury_core *core;

	/* Whoever may configure a network namespace pays for it. */
	core = kvzalloc(mercury_core_size(jobs, bands), GFP_KERNEL_ACCOUNT);
	if (core)
		mercury_core_init(core, jobs, bands);
	else
		NL_SET_ERR_MSG_MOD(extack, "no memory for so many jobs and bands");
	return core;
}

/* Move the packets of a band to the places that they ask for in another core. */
static void mercury_move_band(struct mercury_core *to, struct mercury_band *from)
{
	struct sk_buff *skb, *next;

	list_for_each_entry_safe(skb, next, &from->queue, list) {
		mercury_unlink(skb);
		mercury_put(to, skb, mercury_place_again(to, skb));
	}
}

static void mercury_move_packets(struct mercury_core *to, struct mercury_core *from)
{
	u32 j, b;

	for (j = 0; j < from->jobs; j++)
		for (b = 0; b < from->bands; b++)
			mercury_move_band(to, &from->job[j].bands[b]);
}

static void mercury_set_band_deadline(struct mercury_job *job, u32 b, u64 time)
{
	struct mercury_band *band = &job->bands[b];

	band->deadline = time;
	if (band->qlen)
		mercury_band_set_due(job, band, mercury_skb_due(mercury_band_head(band), band));
}

static void mercury_set_deadlines(struct mercury_core *core, const struct nlattr *deadlines)
{
	const struct nlattr *attr;
	int rest;

	nla_for_each_nested(attr, deadlines, rest) {
		struct mercury_deadline d = mercury_get_deadline(attr);
		bool every = d.job == MERCURY_EVERY_JOB;
		u32 b, j, last_job = every ? core->jobs - 1 : d.job;

		for (j = every ? 0 : d.job; j <= last_job; j++)
			for (b = d.first; b <= d.last; b++)
				mercury_set_band_deadline(&core->job[j], b, d.time);
	}
}

/* Start to shape anew: what the old rate has put off may be due, and vice versa. */
static void mercury_set_rate(struct Qdisc *sch, u64 rate)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct tc_ratespec spec = {};

	if (rate)
		psched_ratecfg_precompute(&q->rate, &spec, rate);
	q->next_send = 0;
	if (sch->q.qlen)
		qdisc_watchdog_schedule_ns(&q->watchdog, 0);
}

/* Put a checked configuration into force. */
static void mercury_apply(struct Qdisc *sch, const struct mercury_config *config)
{
	struct mercury_sched *q = qdisc_priv(sch);

	if (config->rate != q->config.rate)
		mercury_set_rate(sch, config->rate);
	q->config = *config;
	q->core->default_share = config->default_share;
	mercury_core_set_rescue(q->core, config->rescue);
	q->mask_shift = __ffs(config->mask);
	q->job_shift = config->job_mask ? __ffs(config->job_mask) : 0;
	q->split = config->split_gso == MERCURY_SPLIT_ON ||
		   (config->split_gso == MERCURY_SPLIT_AUTO && config->rate &&
		    config->rate < MERCURY_SPLIT_RATE);
	sch->limit = config->limit;
}

/* Push out what a change of limits has made too many, and tell the parents. */
static void mercury_shrink(struct Qdisc *sch, struct mercury_job *job)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_tally lost = {};
	struct mercury_place from;
	struct sk_buff *skb;

	while (mercury_is_over_limit(q, job)) {
		skb = mercury_push_out(sch, job, &from);
		lost.packets++;
		lost.bytes += qdisc_pkt_len(skb);
		qdisc_qstats_drop(sch);
		rtnl_kfree_skbs(skb, skb);
	}
	if (lost.packets)
		qdisc_tree_reduce_backlog(sch, lost.packets, lost.bytes);
}

static int mercury_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_config config = q->config;
	struct nlattr *tb[TCA_MERCURY_MAX + 1];
	struct mercury_core *old = NULL;
	u32 j;
	int err;

	err = nla_parse_nested(tb, TCA_MERCURY_MAX, opt, mercury_policy, extack);
	if (!err)
		err = mercury_parse(tb, &config, extack);
	if (err)
		return err;
	if (config.jobs != q->core->jobs || config.bands != q->core->bands) {
		old = mercury_core_alloc(config.jobs, config.bands, extack);
		if (!old)
			return -ENOMEM;
	}

	sch_tree_lock(sch);
	mercury_queue_only(q);
	if (old) {
		mercury_core_inherit(old, q->core);
		mercury_move_packets(old, q->core);
		swap(q->core, old);
	}
	mercury_apply(sch, &config);
	if (tb[TCA_MERCURY_DEADLINES])
		mercury_set_deadlines(q->core, tb[TCA_MERCURY_DEADLINES]);
	for (j = 0; j < config.jobs; j++)
		mercury_shrink(sch, &q->core->job[j]);
	mercury_check_locked(sch, q->core);
	sch_tree_unlock(sch);

	kvfree(old);
	return 0;
}

/* --- Init, reset, destroy ------------------------------------------------- */

static struct Qdisc *mercury_child_of(struct Qdisc *sch, const struct Qdisc_ops *ops,
				      struct netlink_ext_ack *extack)
{
	struct Qdisc *child = qdisc_create_dflt(sch->dev_queue, ops,
						TC_H_MAKE(sch->handle, MERCURY_MINOR_DEFAULT),
						extack);

	if (!child)
		return NULL;
	/* Like any child, it works under our lock and counts in one place. */
	child->flags &= ~TCQ_F_NOLOCK;
	if (child->flags & TCQ_F_CPUSTATS) {
		child->flags &= ~TCQ_F_CPUSTATS;
		free_percpu(child->cpu_bstats);
		free_percpu(child->cpu_qstats);
		child->cpu_bstats = NULL;
		child->cpu_qstats = NULL;
	}
	return child;
}

/*
 * The child of the default class unless another is grafted: the system's own
 * default, or pfifo_fast where that cannot be: where it is mercury itself or
 * something that does not queue, and where the kernel made us by default. Then
 * we have no handle, and a child that drops what it has queued, as fq_codel
 * does, could not find us to say so.
 */
static struct Qdisc *mercury_child_create(struct Qdisc *sch, struct netlink_ext_ack *extack)
{
	struct Qdisc *child = NULL;

	if (sch->handle && default_qdisc_ops->enqueue != mercury_enqueue)
		child = mercury_child_of(sch, default_qdisc_ops, NULL);
	if (child && !child->enqueue) {
		qdisc_put(child);
		child = NULL;
	}
	if (!child)
		child = mercury_child_of(sch, &pfifo_fast_ops, extack);
	if (child)
		qdisc_hash_add(child, true);
	return child;
}

static const struct mercury_config mercury_default_config = {
	.ce_threshold = MERCURY_TIME_NONE,
	.limit = MERCURY_LIMIT_DEFAULT,
	.memory_limit = MERCURY_MEMORY_DEFAULT,
	.jobs = MERCURY_JOBS_DEFAULT,
	.bands = MERCURY_BANDS_DEFAULT,
	.default_share = MERCURY_SHARE_DEFAULT,
	.rescue = MERCURY_RESCUE_DEFAULT,
	.mask = MERCURY_MASK_DEFAULT,
	.job_mask = MERCURY_JOB_MASK_DEFAULT,
	.key = MERCURY_KEY_MARK,
	.split_gso = MERCURY_SPLIT_AUTO,
	.ack_first = 1,
};

/* On failure the kernel calls destroy. */
static int mercury_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct mercury_sched *q = qdisc_priv(sch);
	int err;

	qdisc_watchdog_init(&q->watchdog, sch);
	q->was_idle = true;
	/* Then our default class would be TC_H_ROOT: what its child drops would not be told us. */
	if (sch->handle == TC_H_MAJ(TC_H_ROOT)) {
		NL_SET_ERR_MSG_MOD(extack, "the handle must not be ffff:");
		return -EINVAL;
	}
	/* A qdisc that the kernel makes by default has no handle. */
	q->major = sch->handle ?: TC_H_MIN_MASK;
	err = tcf_block_get(&q->block, &q->filter_list, sch, extack);
	if (err)
		return err;
	q->core = mercury_core_alloc(mercury_default_config.jobs, mercury_default_config.bands,
				     extack);
	q->child = mercury_child_create(sch, extack);
	if (!q->core || !q->child)
		return -ENOMEM;
	mercury_apply(sch, &mercury_default_config);
	return opt ? mercury_change(sch, opt, extack) : 0;
}

static void mercury_purge_job(struct Qdisc *sch, struct mercury_job *job)
{
	while (job->qlen) {
		struct mercury_place last = { job, mercury_job_last(job) };
		struct sk_buff *skb = mercury_cut_tail(sch, last);

		rtnl_kfree_skbs(skb, skb);
	}
}

static void mercury_reset(struct Qdisc *sch)
{
	struct mercury_sched *q = qdisc_priv(sch);
	u32 j;

	qdisc_watchdog_cancel(&q->watchdog);
	q->next_send = 0;
	q->was_idle = true;
	if (q->core) {
		mercury_queue_only(q);
		for (j = 0; j < q->core->jobs; j++)
			mercury_purge_job(sch, &q->core->job[j]);
		mercury_check_core(q->core);
		mercury_core_clear(q->core);
	}
	if (q->child)
		qdisc_reset(q->child);
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

static void mercury_destroy(struct Qdisc *sch)
{
	struct mercury_sched *q = qdisc_priv(sch);

	tcf_block_put(q->block);
	qdisc_watchdog_cancel(&q->watchdog);
	if (q->child)
		qdisc_put(q->child);
	kvfree(q->core);
}

/* --- Dump ----------------------------------------------------------------- */

static bool mercury_same_deadlines(const struct mercury_core *core)
{
	u32 j, b;

	for (j = 1; j < core->jobs; j++)
		for (b = 0; b < core->bands; b++)
			if (core->job[j].bands[b].deadline != core->job[0].bands[b].deadline)
				return false;
	return true;
}

/* Dump the runs of a job's bands with a deadline of their own; -1 if the skb is full. */
static int mercury_dump_runs(struct sk_buff *skb, const struct mercury_core *core, u32 j,
			     u16 name, u32 *room)
{
	const struct mercury_band *bands = core->job[j].bands;
	u32 first, last;

	for (first = 0; first < core->bands && *room; first = last + 1) {
		struct mercury_deadline d = { .job = name, .first = first };

		last = first;
		while (last + 1 < core->bands && bands[last + 1].deadline == bands[first].deadline)
			last++;
		if (bands[first].deadline == MERCURY_DEADLINE_DEFAULT)
			continue;
		d.last = last;
		d.time = bands[first].deadline;
		if (nla_put(skb, TCA_MERCURY_DEADLINE, sizeof(d), &d))
			return -1;
		--*room;
	}
	return 0;
}

static int mercury_dump_deadlines(struct sk_buff *skb, const struct mercury_core *core)
{
	struct nlattr *nest = nla_nest_start(skb, TCA_MERCURY_DEADLINES);
	bool same = mercury_same_deadlines(core);
	u32 j, jobs = same ? 1 : core->jobs, room = MERCURY_DEADLINES_MAX;

	if (!nest)
		return -1;
	for (j = 0; j < jobs; j++)
		if (mercury_dump_runs(skb, core, j, same ? MERCURY_EVERY_JOB : j, &room))
			return -1;
	nla_nest_end(skb, nest);
	return 0;
}

static int mercury_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	struct mercury_sched *q = qdisc_priv(sch);
	const struct mercury_config *config = &q->config;
	struct nlattr *nest = nla_nest_start(skb, TCA_OPTIONS);

	if (!nest ||
	    nla_put_u32(skb, TCA_MERCURY_JOBS, config->jobs) ||
	    nla_put_u32(skb, TCA_MERCURY_BANDS, config->bands) ||
	    nla_put_u32(skb, TCA_MERCURY_LIMIT, config->limit) ||
	    nla_put_u32(skb, TCA_MERCURY_MEMORY_LIMIT, config->memory_limit) ||
	    nla_put_u8(skb, TCA_MERCURY_KEY, config->key) ||
	    nla_put_u32(skb, TCA_MERCURY_MASK, config->mask) ||
	    nla_put_u32(skb, TCA_MERCURY_JOB_MASK, config->job_mask) ||
	    nla_put_u32(skb, TCA_MERCURY_DEFAULT_SHARE, config->default_share) ||
	    nla_put_u32(skb, TCA_MERCURY_RESCUE, config->rescue) ||
	    nla_put_u64_64bit(skb, TCA_MERCURY_RATE, config->rate, TCA_MERCURY_PAD) ||
	    nla_put_u8(skb, TCA_MERCURY_SPLIT_GSO, config->split_gso) ||
	    nla_put_u8(skb, TCA_MERCURY_ACK_FIRST, config->ack_first) ||
	    nla_put_u64_64bit(skb, TCA_MERCURY_CE_THRESHOLD, config->ce_threshold,
			      TCA_MERCURY_PAD) ||
	    mercury_dump_deadlines(skb, q->core)) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	return nla_nest_end(skb, nest);
}

/* A band's counts, or the sum over the bands of a job or of all jobs. */
struct mercury_totals {
	struct mercury_counters count;
	u64 backlog; /* bytes */
	u64 acks;
	u64 memory;
	u32 qlen;
};

static void mercury_total_job(struct Qdisc *sch, const struct mercury_job *job,
			      struct mercury_totals *totals)
{
	struct mercury_sched *q = qdisc_priv(sch);
	u32 b;

	sch_tree_lock(sch);
	mercury_queue_only(q);
	for (b = 0; b < q->core->bands; b++) {
		mercury_count_add(&totals->count, &job->bands[b].count);
		totals->backlog += job->bands[b].backlog;
	}
	totals->qlen += job->qlen;
	totals->memory += job->memory;
	totals->acks += job->acks;
	sch_tree_unlock(sch);
}

static int mercury_put_stat(struct gnet_dump *d, int attr, u64 value)
{
	return nla_put_u64_64bit(d->skb, attr, value, TCA_MERCURY_STATS_PAD);
}

static int mercury_put_counters(struct gnet_dump *d, const struct mercury_counters *count)
{
	return mercury_put_stat(d, TCA_MERCURY_STATS_DROP_LIMIT, count->drop_limit) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_DROP_MEMORY, count->drop_memory) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_CE_MARKS, count->ce_marks) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_MET, count->met) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_MISSED, count->missed) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_LATENESS, count->lateness) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_LATENESS_MAX, count->lateness_max) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_RESCUED, count->rescued) ||
	       mercury_put_stat(d, TCA_MERCURY_STATS_RESCUED_BYTES, count->rescued_bytes);
}

static int mercury_dump_stats(struct Qdisc *sch, struct gnet_dump *d)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct mercury_core *core = q->core;
	struct mercury_totals totals = {};
	struct nlattr *nest = nla_nest_start_noflag(d->skb, TCA_STATS_APP);
	u32 j;

	for (j = 0; j < core->jobs; j++)
		mercury_total_job(sch, &core->job[j], &totals);
	if (!nest ||
	    mercury_put_stat(d, TCA_MERCURY_STATS_MEMORY, totals.memory) ||
	    mercury_put_stat(d, TCA_MERCURY_STATS_MEMORY_PEAK, core->memory_peak) ||
	    nla_put_u32(d->skb, TCA_MERCURY_STATS_ACTIVE_JOBS,
			hweight64(core->active & ~BIT_ULL(MERCURY_DEFAULT))) ||
	    mercury_put_stat(d, TCA_MERCURY_STATS_DROP_FILTER, q->drop_filter) ||
	    mercury_put_stat(d, TCA_MERCURY_STATS_DROP_GSO, q->drop_gso) ||
	    mercury_put_stat(d, TCA_MERCURY_STATS_SPLIT, q->gso_split) ||
	    mercury_put_stat(d, TCA_MERCURY_STATS_ACKS, totals.acks) ||
	    mercury_put_counters(d, &totals.count)) {
		nla_nest_cancel(d->skb, nest);
		return -1;
	}
	nla_nest_end(d->skb, nest);
	return 0;
}

/* --- Classes -------------------------------------------------------------- */

/* A class is named by its minor number; 0: there is no such class. */
static unsigned long mercury_class_find(struct Qdisc *sch, u32 classid)
{
	struct mercury_sched *q = qdisc_priv(sch);
	u32 job, band, minor = TC_H_MIN(classid);

	if (minor == MERCURY_MINOR_DEFAULT)
		return minor;
	if (mercury_minor_is_job(minor, &job))
		return job < q->core->jobs ? minor : 0;
	if (mercury_minor_is_band(minor, &job, &band))
		return job < q->core->jobs && band < q->core->bands ? minor : 0;
	return 0;
}

static unsigned long mercury_bind_filter(struct Qdisc *sch, unsigned long parent, u32 classid)
{
	return mercury_class_find(sch, classid);
}

/* Classes live as long as the qdisc: nothing is held. */
static void mercury_unbind_filter(struct Qdisc *sch, unsigned long cl)
{
}

static struct tcf_block *mercury_tcf_block(struct Qdisc *sch, unsigned long cl,
					   struct netlink_ext_ack *extack)
{
	struct mercury_sched *q = qdisc_priv(sch);

	if (!cl)
		return q->block;
	NL_SET_ERR_MSG_MOD(extack, "filters go to the qdisc, not to its classes");
	return NULL;
}

static int mercury_graft(struct Qdisc *sch, unsigned long cl, struct Qdisc *new,
			 struct Qdisc **old, struct netlink_ext_ack *extack)
{
	struct mercury_sched *q = qdisc_priv(sch);

	if (cl != MERCURY_MINOR_DEFAULT) {
		NL_SET_ERR_MSG_MOD(extack, "only the default class, ffff, can have a child qdisc");
		return -EOPNOTSUPP;
	}
	if (!new)
		new = mercury_child_create(sch, NULL);
	if (!new)
		new = &noop_qdisc;
	*old = qdisc_replace(sch, new, &q->child);
	return 0;
}

static struct Qdisc *mercury_leaf(struct Qdisc *sch, unsigned long cl)
{
	struct mercury_sched *q = qdisc_priv(sch);

	return cl == MERCURY_MINOR_DEFAULT ? q->child : NULL;
}

/* The child has become empty. */
static void mercury_qlen_notify(struct Qdisc *sch, unsigned long cl)
{
	struct mercury_sched *q = qdisc_priv(sch);

	mercury_core_sleep(q->core, MERCURY_DEFAULT);
}

static const struct nla_policy mercury_class_policy[TCA_MERCURY_CLASS_MAX + 1] = {
	[TCA_MERCURY_CLASS_WEIGHT] = { .type = NLA_U32 },
	[TCA_MERCURY_CLASS_LIMIT] = { .type = NLA_U32 },
	[TCA_MERCURY_CLASS_DEADLINE] = { .type = NLA_U64 },
	[TCA_MERCURY_CLASS_JOB] = { .type = NLA_REJECT },
	[TCA_MERCURY_CLASS_BAND] = { .type = NLA_REJECT },
};

static int mercury_check_class(unsigned long cl, struct nlattr **tb,
			       struct netlink_ext_ack *extack)
{
	struct nlattr *weight = tb[TCA_MERCURY_CLASS_WEIGHT];
	struct nlattr *limit = tb[TCA_MERCURY_CLASS_LIMIT];
	struct nlattr *deadline = tb[TCA_MERCURY_CLASS_DEADLINE];
	u32 job;

	if (cl == MERCURY_MINOR_DEFAULT) {
		NL_SET_ERR_MSG_MOD(extack, "the default class is set by default_share, and by its child qdisc");
		return -EINVAL;
	}
	if (weight && !mercury_minor_is_job(cl, &job))
		return mercury_refuse(extack, weight, "sch_mercury: a band has no weight, its job has");
	if (deadline && mercury_minor_is_job(cl, &job))
		return mercury_refuse(extack, deadline,
				      "sch_mercury: a job has no deadline, its bands have");
	if (weight && (nla_get_u32(weight) < MERCURY_WEIGHT_MIN ||
		       nla_get_u32(weight) > MERCURY_WEIGHT_MAX))
		return mercury_refuse(extack, weight, "sch_mercury: weight must be 1 to 1000");
	if (limit && nla_get_u32(limit) > MERCURY_LIMIT_MAX)
		return mercury_refuse(extack, limit,
				      "sch_mercury: limit must be 1 to 2147483647 packets, or 0 for none");
	if (deadline && !mercury_time_is_valid(nla_get_u64(deadline)))
		return mercury_refuse(extack, deadline,
				      "sch_mercury: deadline must be 1 us to 1 hour, or none");
	return 0;
}

static void mercury_change_job(struct Qdisc *sch, struct mercury_job *job, struct nlattr **tb)
{
	struct mercury_sched *q = qdisc_priv(sch);

	if (tb[TCA_MERCURY_CLASS_WEIGHT])
		mercury_job_set_weight(q->core, job, nla_get_u32(tb[TCA_MERCURY_CLASS_WEIGHT]));
	if (tb[TCA_MERCURY_CLASS_LIMIT])
		job->limit = nla_get_u32(tb[TCA_MERCURY_CLASS_LIMIT]);
	mercury_shrink(sch, job);
}

static void mercury_change_band(struct mercury_job *job, u32 b, struct nlattr **tb)
{
	if (tb[TCA_MERCURY_CLASS_DEADLINE])
		mercury_set_band_deadline(job, b, nla_get_u64(tb[TCA_MERCURY_CLASS_DEADLINE]));
	/* What is queued beyond a new limit may stay; what comes is dropped. */
	if (tb[TCA_MERCURY_CLASS_LIMIT])
		job->bands[b].limit = nla_get_u32(tb[TCA_MERCURY_CLASS_LIMIT]);
}

static int mercury_change_class(struct Qdisc *sch, u32 classid, u32 parent, struct nlattr **tca,
				unsigned long *arg, struct netlink_ext_ack *extack)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct nlattr *tb[TCA_MERCURY_CLASS_MAX + 1];
	u32 j, b;
	int err;

	if (!*arg) {
		NL_SET_ERR_MSG_MOD(extack, "no such class: jobs and bands say which there are");
		return -ENOENT;
	}
	if (!tca[TCA_OPTIONS]) {
		NL_SET_ERR_MSG_MOD(extack, "weight, limit or deadline is missing");
		return -EINVAL;
	}
	err = nla_parse_nested(tb, TCA_MERCURY_CLASS_MAX, tca[TCA_OPTIONS], mercury_class_policy,
			       extack);
	if (!err)
		err = mercury_check_class(*arg, tb, extack);
	if (err)
		return err;

	sch_tree_lock(sch);
	mercury_queue_only(q);
	if (mercury_minor_is_job(*arg, &j))
		mercury_change_job(sch, &q->core->job[j], tb);
	else if (mercury_minor_is_band(*arg, &j, &b))
		mercury_change_band(&q->core->job[j], b, tb);
	mercury_check_locked(sch, q->core);
	sch_tree_unlock(sch);
	return 0;
}

static int mercury_delete_class(struct Qdisc *sch, unsigned long cl,
				struct netlink_ext_ack *extack)
{
	NL_SET_ERR_MSG_MOD(extack, "classes come and go with jobs and bands");
	return -EOPNOTSUPP;
}

/* Has any of its bands been used, or is it set apart? */
static bool mercury_job_is_used(const struct mercury_core *core, const struct mercury_job *job)
{
	u32 b;

	if (job->weight != MERCURY_WEIGHT_DEFAULT || job->limit)
		return true;
	for (b = 0; b < core->bands; b++)
		if (mercury_band_is_used(&job->bands[b]))
			return true;
	return false;
}

/* Jobs each before its bands, then the default class. */
static void mercury_walk(struct Qdisc *sch, struct qdisc_walker *arg)
{
	struct mercury_sched *q = qdisc_priv(sch);
	const struct mercury_core *core = q->core;
	u32 j, b;

	if (arg->stop)
		return;
	sch_tree_lock(sch);
	mercury_queue_only(q);
	mercury_check_locked(sch, core);
	sch_tree_unlock(sch);
	for (j = 0; j < core->jobs; j++) {
		const struct mercury_job *job = &core->job[j];

		if (!mercury_job_is_used(core, job))
			continue;
		if (!tc_qdisc_stats_dump(sch, MERCURY_MINOR_JOB(j), arg))
			return;
		for (b = 0; b < core->bands; b++)
			if (mercury_band_is_used(&job->bands[b]) &&
			    !tc_qdisc_stats_dump(sch, MERCURY_MINOR_BAND(j, b), arg))
				return;
	}
	tc_qdisc_stats_dump(sch, MERCURY_MINOR_DEFAULT, arg);
}

static int mercury_put_job(struct sk_buff *skb, const struct mercury_job *job)
{
	return nla_put_u32(skb, TCA_MERCURY_CLASS_JOB, job->number) ||
	       nla_put_u32(skb, TCA_MERCURY_CLASS_WEIGHT, job->weight) ||
	       nla_put_u32(skb, TCA_MERCURY_CLASS_LIMIT, job->limit);
}

static int mercury_put_band(struct sk_buff *skb, const struct mercury_job *job, u32 b)
{
	const struct mercury_band *band = &job->bands[b];

	return nla_put_u32(skb, TCA_MERCURY_CLASS_JOB, job->number) ||
	       nla_put_u32(skb, TCA_MERCURY_CLASS_BAND, b) ||
	       nla_put_u32(skb, TCA_MERCURY_CLASS_LIMIT, band->limit) ||
	       nla_put_u64_64bit(skb, TCA_MERCURY_CLASS_DEADLINE, band->deadline,
				 TCA_MERCURY_CLASS_PAD);
}

static int mercury_dump_class(struct Qdisc *sch, unsigned long cl, struct sk_buff *skb,
			      struct tcmsg *tcm)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct nlattr *nest;
	int err = 0;
	u32 j, b;

	tcm->tcm_parent = TC_H_ROOT;
	tcm->tcm_handle = TC_H_MAKE(sch->handle, cl);
	nest = nla_nest_start(skb, TCA_OPTIONS);
	if (!nest)
		return -EMSGSIZE;
	if (cl == MERCURY_MINOR_DEFAULT)
		tcm->tcm_info = q->child->handle;
	else if (mercury_minor_is_job(cl, &j))
		err = mercury_put_job(skb, &q->core->job[j]);
	else if (mercury_minor_is_band(cl, &j, &b))
		err = mercury_put_band(skb, &q->core->job[j], b);
	if (err) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	return nla_nest_end(skb, nest);
}

static int mercury_dump_default_stats(struct Qdisc *child, struct gnet_dump *d)
{
	if (gnet_stats_copy_basic(d, child->cpu_bstats, &child->bstats, true) < 0 ||
	    qdisc_qstats_copy(d, child) < 0)
		return -1;
	return 0;
}

static void mercury_total_band(struct Qdisc *sch, const struct mercury_band *band,
			       struct mercury_totals *totals)
{
	struct mercury_sched *q = qdisc_priv(sch);

	sch_tree_lock(sch);
	mercury_queue_only(q);
	totals->count = band->count;
	totals->backlog = band->backlog;
	totals->qlen = band->qlen;
	sch_tree_unlock(sch);
}

static int mercury_put_class_app(struct gnet_dump *d, const struct mercury_totals *totals,
				 bool is_job)
{
	if (mercury_put_counters(d, &totals->count))
		return -1;
	if (is_job)
		return mercury_put_stat(d, TCA_MERCURY_STATS_MEMORY, totals->memory) ||
		       mercury_put_stat(d, TCA_MERCURY_STATS_ACKS, totals->acks);
	return nla_put_64bit(d->skb, TCA_MERCURY_STATS_SOJOURN, sizeof(totals->count.sojourn),
			     totals->count.sojourn, TCA_MERCURY_STATS_PAD);
}

static int mercury_dump_class_stats(struct Qdisc *sch, unsigned long cl, struct gnet_dump *d)
{
	struct mercury_sched *q = qdisc_priv(sch);
	struct gnet_stats_basic_sync basic;
	struct mercury_totals totals = {};
	struct gnet_stats_queue queue = {};
	struct nlattr *nest;
	bool is_job;
	u32 j, b;

	if (cl == MERCURY_MINOR_DEFAULT)
		return mercury_dump_default_stats(q->child, d);
	is_job = mercury_minor_is_job(cl, &j);
	if (is_job)
		mercury_total_job(sch, &q->core->job[j], &totals);
	else if (mercury_minor_is_band(cl, &j, &b))
		mercury_total_band(sch, &q->core->job[j].bands[b], &totals);

	gnet_stats_basic_sync_init(&basic);
	_bstats_update(&basic, totals.count.bytes, totals.count.segments);
	queue.backlog = totals.backlog;
	queue.drops = totals.count.drop_limit + totals.count.drop_memory;
	if (gnet_stats_copy_basic(d, NULL, &basic, false) < 0 ||
	    gnet_stats_copy_queue(d, NULL, &queue, totals.qlen) < 0)
		return -1;

	nest = nla_nest_start_noflag(d->skb, TCA_STATS_APP);
	if (!nest || mercury_put_class_app(d, &totals, is_job)) {
		nla_nest_cancel(d->skb, nest);
		return -1;
	}
	nla_nest_end(d->skb, nest);
	return 0;
}

static const struct Qdisc_class_ops mercury_class_ops = {
	.graft = mercury_graft,
	.leaf = mercury_leaf,
	.qlen_notify = mercury_qlen_notify,
	.find = mercury_class_find,
	.change = mercury_change_class,
	.delete = mercury_delete_class,
	.walk = mercury_walk,
	.tcf_block = mercury_tcf_block,
	.bind_tcf = mercury_bind_filter,
	.unbind_tcf = mercury_unbind_filter,
	.dump = mercury_dump_class,
	.dump_stats = mercury_dump_class_stats,
};

static struct Qdisc_ops mercury_qdisc_ops __read_mostly = {
	.id = MERCURY_KIND,
	.cl_ops = &mercury_class_ops,
	.priv_size = sizeof(struct mercury_sched),
	.enqueue = mercury_enqueue,
	.dequeue = mercury_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = mercury_init,
	.reset = mercury_reset,
	.destroy = mercury_destroy,
	.change = mercury_change,
	.dump = mercury_dump,
	.dump_stats = mercury_dump_stats,
	.owner = THIS_MODULE,
};

static int __init mercury_module_init(void)
{
	return register_qdisc(&mercury_qdisc_ops);
}

static void __exit mercury_module_exit(void)
{
	unregister_qdisc(&mercury_qdisc_ops);
}

module_init(mercury_module_init);
module_exit(mercury_module_exit);

MODULE_DESCRIPTION("Mercury: priority scheduling for distributed training");
MODULE_AUTHOR("The Mercury authors");
MODULE_LICENSE("GPL");
MODULE_ALIAS("net-sch-mercury");
