/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the KUnit cases of sch_mercury stand on: a device that is never up, a
 * parent qdisc that counts like prio or tbf, a child qdisc that misbehaves on
 * request, packets with a name, and a clock that only a test moves. After
 * every step kt_check() compares all that the qdisc says about itself with
 * what really hangs on its lists.
 *
 * It includes the source of the module, so that its static functions can be
 * called, and takes from it: the clock, the timer, and memory.
 */
#ifndef _MERCURY_FIXTURE_H
#define _MERCURY_FIXTURE_H

#include <kunit/test.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/prandom.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/timekeeping.h>
#include <linux/unaligned.h>
#include <net/ip.h>
#include <net/pkt_cls.h>
#include <net/pkt_sched.h>
#include <net/sock.h>
#include <net/tcp.h>

/* --- What the module takes from the kernel, and here from the test -------- */

#define KT_START (1000 * NSEC_PER_SEC)

static u64 kt_now; /* ns, what ktime_get_ns() says */
static u64 kt_timer; /* ns, when the watchdog would wake the device; 0: never */
static bool kt_no_memory; /* kvzalloc() fails */
static bool kt_woken; /* the watchdog would wake it at once */

static u64 kt_ktime_get_ns(void)
{
	return kt_now;
}

/* How far the other clocks are ahead of the monotonic one. */
static ktime_t kt_ktime_mono_to_any(ktime_t mono, enum tk_offsets offset)
{
	static const ktime_t ahead[TK_OFFS_MAX] = {
		[TK_OFFS_REAL] = 1700000000LL * NSEC_PER_SEC,
		[TK_OFFS_BOOT] = 5LL * NSEC_PER_SEC,
		[TK_OFFS_TAI] = 1700000037LL * NSEC_PER_SEC,
	};

	return mono + ahead[offset];
}

static void kt_watchdog_schedule_ns(struct qdisc_watchdog *wd, u64 expires)
{
	kt_timer = expires;
	kt_woken |= expires <= kt_now;
}

static void kt_watchdog_cancel(struct qdisc_watchdog *wd)
{
	kt_timer = 0;
	qdisc_watchdog_cancel(wd);
}

static void *kt_kvzalloc(size_t size, gfp_t flags)
{
	return kt_no_memory ? NULL : kvzalloc(size, flags);
}

#define ktime_get_ns kt_ktime_get_ns
#define ktime_mono_to_any kt_ktime_mono_to_any
#define qdisc_watchdog_schedule_ns kt_watchdog_schedule_ns
#define qdisc_watchdog_cancel kt_watchdog_cancel
#undef kvzalloc
#define kvzalloc kt_kvzalloc

#include "sch_mercury_main.c"

/* --- The fixture ------------------------------------------------------------ */

#define KT_HANDLE TC_H_MAKE(0x10000, 0) /* of the qdisc under test, 1: */
#define KT_PARENT TC_H_MAKE(0x20000, 0)
#define KT_CHILD TC_H_MAKE(0x30000, 0)
#define KT_LEN 1000 /* bytes of a packet, unless a test wants another */
#define KT_DROPS 64 /* packets dropped in a step, that are remembered */

/* What enqueue of the child does. */
enum kt_child_mode {
	KT_CHILD_QUEUES,
	KT_CHILD_DROPS, /* the packet: NET_XMIT_DROP */
	KT_CHILD_STEALS, /* the packet: SUCCESS | STOLEN */
	KT_CHILD_BYPASSES, /* drops the packet and says SUCCESS | BYPASS */
	KT_CHILD_DROPS_HEAD, /* of another flow, queues the packet: SUCCESS */
	KT_CHILD_CONGESTED, /* drops its head, queues the packet: CN */
};

/* One of everything: KUnit runs the cases one after another. */
static struct kt {
	struct kunit *test;
	struct net_device *dev;
	struct Qdisc *parent; /* NULL: the qdisc under test is the root */
	struct Qdisc *sch;
	const struct Qdisc_ops *default_ops; /* as they were */
	const struct kt_option *options; /* for init */
	u32 handle; /* that init gives the qdisc */
	const char *message; /* of the last extack */
	bool parent_peeks; /* before it dequeues, as tbf does */
	bool unchecked; /* kt_check() would take too long after every step */
	bool splits; /* the parent cannot count dropped segments */
	enum kt_child_mode child_mode;
	bool child_holds; /* the child has packets and gives none */
	struct socket *sock;

	u32 id; /* of the packet that was made last */
	atomic_t alive; /* packets made by the test and not yet freed */
	u32 given; /* to the qdisc */
	u32 got; /* from it */
	u32 lost; /* dropped in enqueue */
	u32 dropped[KT_DROPS]; /* ids, in the last step */
	u16 dropped_flow[KT_DROPS];
	u32 drops; /* how many */
	u32 notified; /* times that the parent was told that we are empty */
	u32 notified_wrongly; /* though we were not */
	u32 len; /* of the packet that kt_get() got last */
	u32 flow; /* ... */
} kt;

/* --- Options ---------------------------------------------------------------- */

struct kt_option {
	u16 attr; /* 0 ends a list */
	u64 value;
	struct mercury_deadline deadline;
};

#define KT_OPTIONS(...) ((const struct kt_option[]){ __VA_ARGS__, { .attr = 0 } })
#define KT_SET(_name, _value) { .attr = TCA_MERCURY_##_name, .value = (_value) }
#define KT_DEADLINE(_job, _first, _last, _time)                                           \
	{                                                                                 \
		.attr = TCA_MERCURY_DEADLINES,                                            \
		.deadline = {                                                             \
			.job = (_job), .first = (_first), .last = (_last), .time = (_time) \
		},                                                                        \
	}

static u8 kt_option_size(u16 attr)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(mercury_rules); i++)
		if (mercury_rules[i].attr == attr)
			return mercury_rules[i].size;
	return 0;
}

static int kt_put_deadlines(struct sk_buff *skb, const struct kt_option *options)
{
	struct nlattr *nest = NULL;

	for (; options->attr; options++) {
		if (options->attr != TCA_MERCURY_DEADLINES)
			continue;
		if (!nest)
			nest = nla_nest_start(skb, TCA_MERCURY_DEADLINES);
		if (!nest || nla_put(skb, TCA_MERCURY_DEADLINE, sizeof(options->deadline),
				     &options->deadline))
			return -EMSGSIZE;
	}
	if (nest)
		nla_nest_end(skb, nest);
	return 0;
}

static int kt_put_options(struct sk_buff *skb, const struct kt_option *options)
{
	const struct kt_option *o;
	int err = 0;

	for (o = options; o->attr && !err; o++) {
		switch (kt_option_size(o->attr)) {
		case sizeof(u8):
			err = nla_put_u8(skb, o->attr, o->value);
			break;
		case sizeof(u32):
			err = nla_put_u32(skb, o->attr, o->value);
			break;
		case sizeof(u64):
			/* Not padded: the pad attribute is for dumps. */
			err = nla_put(skb, o->attr, sizeof(u64), &o->value);
			break;
		}
	}
	return err ?: kt_put_deadlines(skb, options);
}

/* A message with TCA_OPTIONS only; free it with kfree_skb(). */
static struct sk_buff *kt_message(const struct kt_option *options)
{
	struct sk_buff *skb = alloc_skb(4096, GFP_KERNEL);
	struct nlattr *nest;

	if (!skb)
		return NULL;
	nest = nla_nest_start(skb, TCA_OPTIONS);
	if (kt_put_options(skb, options)) {
		kfree_skb(skb);
		return NULL;
	}
	nla_nest_end(skb, nest);
	return skb;
}

/* --- Sums that must hold ----------------------------------------------------- */

static void kt_check_band(struct kunit *test, const struct mercury_core *core,
			  const struct mercury_job *job, u32 b, u64 *memory)
{
	const struct mercury_band *band = &job->bands[b];
	u32 word = b / BITS_PER_LONG, qlen = 0;
	const struct sk_buff *skb;
	u64 bytes = 0, due = MERCURY_TIME_NONE;

	list_for_each_entry(skb, &band->queue, list) {
		qlen++;
		bytes += qdisc_pkt_len(skb);
		*memory += skb->truesize;
	}
	if (qlen)
		due = mercury_skb_due(mercury_band_head(band), band);
	KUNIT_EXPECT_EQ(test, band->qlen, qlen);
	KUNIT_EXPECT_EQ(test, band->backlog, bytes);
	KUNIT_EXPECT_EQ(test, !!(job->occupied[word] & BIT(b % BITS_PER_LONG)), !!qlen);
	KUNIT_EXPECT_EQ(test, band->due, due);
	KUNIT_EXPECT_LE(test, band->heap_due, due);
	if (band->heap_due == MERCURY_TIME_NONE)
		return;
	KUNIT_ASSERT_LT(test, band->heap_at, job->heap_len);
	KUNIT_EXPECT_EQ(test, job->heap[band->heap_at].band, b);
	KUNIT_EXPECT_EQ(test, job->heap[band->heap_at].due, band->heap_due);
}

static void kt_check_job(struct kunit *test, const struct mercury_core *core, u32 j)
{
	const struct mercury_job *job = &core->job[j];
	u64 memory = 0;
	u32 qlen = 0, b, i;

	for (b = 0; b < core->bands; b++) {
		kt_check_band(test, core, job, b, &memory);
		qlen += job->bands[b].qlen;
	}
	for (i = 0; i < MERCURY_WORDS; i++)
		KUNIT_EXPECT_EQ(test, !!(job->words & BIT(i)), !!job->occupied[i]);
	for (i = 1; i < job->heap_len; i++)
		KUNIT_EXPECT_LE(test, job->heap[(i - 1) / 2].due, job->heap[i].due);
	KUNIT_ASSERT_LE(test, job->heap_len, core->bands);
	KUNIT_EXPECT_EQ(test, job->number, j);
	KUNIT_EXPECT_EQ(test, job->qlen, qlen);
	KUNIT_EXPECT_EQ(test, job->memory, memory);
	KUNIT_EXPECT_EQ(test, !!(core->active & BIT_ULL(j)), !!qlen);
}

static void kt_check_parent(struct kunit *test)
{
	if (!kt.parent)
		return;
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, kt.sch->q.qlen);
	KUNIT_EXPECT_EQ(test, kt.parent->qstats.backlog, kt.sch->qstats.backlog);
	if (!kt.splits)
		KUNIT_EXPECT_EQ(test, kt.parent->qstats.drops, kt.sch->qstats.drops);
	KUNIT_EXPECT_EQ(test, kt.notified_wrongly, 0);
}

/* A packet that is queued in none of the bands, if there is one. */
static void kt_count_apart(const struct sk_buff *skb, u32 *qlen, u64 *backlog)
{
	if (!skb)
		return;
	++*qlen;
	*backlog += qdisc_pkt_len(skb);
}

/* Call it without locks: a failed expectation may sleep. */
static void kt_check(void)
{
	struct kunit *test = kt.test;
	struct mercury_sched *q = qdisc_priv(kt.sch);
	const struct mercury_core *core = q->core;
	u64 memory = 0, backlog = q->child->qstats.backlog;
	u32 qlen = q->child->q.qlen, own = 0, weights = 0, j, b;

	for (j = 0; j < core->jobs; j++) {
		kt_check_job(test, core, j);
		own += core->job[j].qlen;
		memory += core->job[j].memory;
		if (core->job[j].qlen)
			weights += core->job[j].weight;
		for (b = 0; b < core->bands; b++)
			backlog += core->job[j].bands[b].backlog;
	}
	qlen += own;
	kt_count_apart(skb_peek(&kt.sch->gso_skb), &qlen, &backlog);
	kt_count_apart(q->only, &qlen, &backlog);
	if (q->only)
		KUNIT_EXPECT_EQ(test, core->qlen + q->child->q.qlen, 0);
	KUNIT_EXPECT_EQ(test, core->qlen, own);
	KUNIT_EXPECT_EQ(test, core->memory, memory);
	KUNIT_EXPECT_LE(test, core->memory, core->memory_peak);
	KUNIT_EXPECT_EQ(test, core->weights, weights);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, qlen);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.backlog, backlog);
	kt_check_parent(test);
}

static void kt_step_done(void)
{
	if (!kt.unchecked)
		kt_check();
}

/* --- The parent --------------------------------------------------------------- */

static int kt_parent_enqueue(struct sk_buff *skb, struct Qdisc *parent, struct sk_buff **to_free)
{
	u32 len = qdisc_pkt_len(skb);
	int ret = qdisc_enqueue(skb, kt.sch, to_free);

	if (ret == NET_XMIT_SUCCESS) {
		parent->q.qlen++;
		parent->qstats.backlog += len;
	} else if (net_xmit_drop_count(ret)) {
		qdisc_qstats_drop(parent);
	}
	return ret;
}

static struct sk_buff *kt_parent_dequeue(struct Qdisc *parent)
{
	struct sk_buff *skb;

	if (kt.parent_peeks)
		skb = kt.sch->ops->peek(kt.sch) ? qdisc_dequeue_peeked(kt.sch) : NULL;
	else
		skb = qdisc_dequeue_peeked(kt.sch);
	if (skb) {
		parent->q.qlen--;
		parent->qstats.backlog -= qdisc_pkt_len(skb);
	}
	return skb;
}

static unsigned long kt_parent_find(struct Qdisc *parent, u32 classid)
{
	return 1;
}

static void kt_parent_qlen_notify(struct Qdisc *parent, unsigned long cl)
{
	kt.notified++;
	if (kt.sch->q.qlen)
		kt.notified_wrongly++;
}

static const struct Qdisc_class_ops kt_parent_class_ops = {
	.find = kt_parent_find,
	.qlen_notify = kt_parent_qlen_notify,
};

static struct Qdisc_ops kt_parent_ops = {
	.id = "kt_parent",
	.cl_ops = &kt_parent_class_ops,
	.enqueue = kt_parent_enqueue,
	.dequeue = kt_parent_dequeue,
	.peek = qdisc_peek_dequeued,
	.owner = THIS_MODULE,
};

/* --- The child that misbehaves -------------------------------------------------- */

static void kt_child_drop_head(struct Qdisc *child, struct sk_buff **to_free, int *packets,
			       int *bytes)
{
	u32 len = __qdisc_queue_drop_head(child, &child->q, to_free);

	if (len) {
		++*packets;
		*bytes += len;
		qdisc_qstats_drop(child);
	}
}

/* As fq_codel does, where the packets dropped may be of the same flow or not. */
static int kt_child_enqueue(struct sk_buff *skb, struct Qdisc *child, struct sk_buff **to_free)
{
	int packets = 0, bytes = 0, len = qdisc_pkt_len(skb);

	switch (kt.child_mode) {
	case KT_CHILD_QUEUES:
		return qdisc_enqueue_tail(skb, child);
	case KT_CHILD_DROPS:
		return qdisc_drop(skb, child, to_free);
	case KT_CHILD_STEALS:
		__qdisc_drop(skb, to_free);
		return NET_XMIT_SUCCESS | __NET_XMIT_STOLEN;
	case KT_CHILD_BYPASSES:
		__qdisc_drop(skb, to_free);
		return NET_XMIT_SUCCESS | __NET_XMIT_BYPASS;
	case KT_CHILD_DROPS_HEAD:
		kt_child_drop_head(child, to_free, &packets, &bytes);
		qdisc_enqueue_tail(skb, child);
		qdisc_tree_reduce_backlog(child, packets, bytes);
		return NET_XMIT_SUCCESS;
	case KT_CHILD_CONGESTED:
		kt_child_drop_head(child, to_free, &packets, &bytes);
		qdisc_enqueue_tail(skb, child);
		qdisc_tree_reduce_backlog(child, packets - 1, bytes - len);
		return NET_XMIT_CN;
	}
	return NET_XMIT_DROP;
}

static struct sk_buff *kt_child_dequeue(struct Qdisc *child)
{
	return kt.child_holds ? NULL : qdisc_dequeue_head(child);
}

static struct Qdisc_ops kt_child_ops = {
	.id = "kt_child",
	.enqueue = kt_child_enqueue,
	.dequeue = kt_child_dequeue,
	.peek = qdisc_peek_dequeued,
	.reset = qdisc_reset_queue,
	.owner = THIS_MODULE,
};

/* --- Making the qdisc -------------------------------------------------------------- */

static int kt_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct netlink_ext_ack here = {};
	struct sk_buff *message = NULL;
	int err;

	if (kt.options) {
		message = kt_message(kt.options);
		if (!message)
			return -ENOMEM;
		opt = (struct nlattr *)message->data;
	}
	sch->handle = kt.handle;
	err = mercury_init(sch, opt, &here);
	kt.message = here._msg;
	kfree_skb(message);
	return err;
}

/* The qdisc under test, but for a way to give it a handle and options. */
static struct Qdisc_ops kt_qdisc_ops;

static struct Qdisc *kt_new_qdisc(const struct Qdisc_ops *ops, u32 parent)
{
	return qdisc_create_dflt(netdev_get_tx_queue(kt.dev, 0), ops, parent, NULL);
}

/* Where the kernel looks for a parent by its handle. */
static void kt_set_root(struct Qdisc *root)
{
	rcu_assign_pointer(kt.dev->qdisc, root);
}

/* Make the qdisc with these options; false: it was refused. */
static bool kt_try_create(const struct kt_option *options)
{
	kt.options = options;
	kt_qdisc_ops = mercury_qdisc_ops;
	kt_qdisc_ops.init = kt_init;
	rtnl_lock();
	kt.sch = kt_new_qdisc(&kt_qdisc_ops, kt.parent ? KT_PARENT + 1 : TC_H_ROOT);
	if (kt.sch)
		qdisc_hash_add(kt.sch, true);
	if (kt.sch && !kt.parent)
		kt_set_root(kt.sch);
	rtnl_unlock();
	return kt.sch;
}

#define kt_create(_test, ...)                                                          \
	do {                                                                           \
		KUNIT_ASSERT_TRUE(_test, kt_try_create(KT_OPTIONS(__VA_ARGS__)));      \
		kt_check();                                                            \
	} while (0)

static void kt_create_default(struct kunit *test)
{
	KUNIT_ASSERT_TRUE(test, kt_try_create(NULL));
	kt_check();
}

/* Without a parent, and without a handle, as the kernel makes a default qdisc. */
static void kt_make_root(u32 handle)
{
	kt.handle = handle;
	rtnl_lock();
	kt_set_root(&noop_qdisc);
	qdisc_put(kt.parent);
	rtnl_unlock();
	kt.parent = NULL;
}

static void kt_destroy(void)
{
	rtnl_lock();
	if (!kt.parent)
		kt_set_root(&noop_qdisc);
	qdisc_put(kt.sch);
	rtnl_unlock();
	kt.sch = NULL;
}

static struct mercury_sched *kt_q(void)
{
	return qdisc_priv(kt.sch);
}

/* For a look at the bands: a packet that is alone is put into its own. */
static struct mercury_core *kt_core(void)
{
	mercury_queue_only(kt_q());
	return kt_q()->core;
}

static struct mercury_job *kt_job(u32 j)
{
	return &kt_core()->job[j];
}

static struct mercury_band *kt_band(u32 j, u32 b)
{
	return &kt_core()->job[j].bands[b];
}

static int kt_change_list(const struct kt_option *options)
{
	struct sk_buff *message = kt_message(options);
	struct netlink_ext_ack extack = {};
	int err;

	if (!message)
		return -ENOBUFS;
	rtnl_lock();
	err = mercury_change(kt.sch, (struct nlattr *)message->data, &extack);
	rtnl_unlock();
	kfree_skb(message);
	kt.message = extack._msg;
	kt_step_done();
	return err;
}

#define kt_change(...) kt_change_list(KT_OPTIONS(__VA_ARGS__))

/* tc class change ... classid 1:MINOR mercury ATTR VALUE */
static int kt_change_class(u32 minor, u16 attr, u64 value)
{
	struct sk_buff *message = alloc_skb(256, GFP_KERNEL);
	struct nlattr *tca[TCA_MAX + 1] = {}, *nest;
	u32 classid = KT_HANDLE | minor;
	struct netlink_ext_ack extack = {};
	unsigned long cl;
	int err;

	if (!message)
		return -ENOBUFS;
	nest = nla_nest_start(message, TCA_OPTIONS);
	if (attr == TCA_MERCURY_CLASS_DEADLINE)
		nla_put(message, attr, sizeof(u64), &value);
	else
		nla_put_u32(message, attr, value);
	nla_nest_end(message, nest);
	tca[TCA_OPTIONS] = nest;

	rtnl_lock();
	cl = mercury_class_find(kt.sch, classid);
	err = mercury_change_class(kt.sch, classid, 0, tca, &cl, &extack);
	rtnl_unlock();
	kfree_skb(message);
	kt.message = extack._msg;
	kt_step_done();
	return err;
}

static int kt_graft(u32 minor, struct Qdisc *new)
{
	struct netlink_ext_ack extack = {};
	struct Qdisc *old = NULL;
	int err;

	rtnl_lock();
	err = mercury_graft(kt.sch, minor, new, &old, &extack);
	qdisc_put(old);
	rtnl_unlock();
	kt.message = extack._msg;
	kt_step_done();
	return err;
}

/* Put the child that misbehaves into the default class. */
static struct Qdisc *kt_graft_child(struct kunit *test)
{
	struct Qdisc *child;

	rtnl_lock();
	child = kt_new_qdisc(&kt_child_ops, KT_HANDLE | MERCURY_MINOR_DEFAULT);
	if (child)
		child->handle = KT_CHILD;
	rtnl_unlock();
	KUNIT_ASSERT_NOT_NULL(test, child);
	KUNIT_ASSERT_EQ(test, kt_graft(MERCURY_MINOR_DEFAULT, child), 0);
	return child;
}

/* --- Packets ------------------------------------------------------------------------ */

/* The name of a packet lies where its destination address would. */
struct kt_name {
	u32 id;
	u16 flow;
} __packed;

static struct kt_name *kt_name(const struct sk_buff *skb)
{
	return (struct kt_name *)skb->data;
}

static void kt_packet_is_gone(struct sk_buff *skb)
{
	atomic_dec(&kt.alive);
}

struct kt_packet {
	u32 mark;
	u32 priority;
	u32 len; /* bytes; 0: KT_LEN */
	u32 truesize; /* bytes; 0: as it is */
	u16 flow;
	bool ack; /* a pure TCP ACK of kt.sock */
	u8 ecn; /* of an IPv4 header; 0: none */
	u8 dscp; /* ... */
	ktime_t txtime; /* SO_TXTIME, of a packet of kt.sock */
};

/* The network header is at the Ethernet payload. */
static void kt_make_ip(struct sk_buff *skb, u8 tos)
{
	struct iphdr *ip = (struct iphdr *)(skb->data + ETH_HLEN);

	skb->protocol = htons(ETH_P_IP);
	skb_set_network_header(skb, ETH_HLEN);
	skb_set_transport_header(skb, ETH_HLEN + sizeof(*ip));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = tos;
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	ip->tot_len = htons(skb->len - ETH_HLEN);
	ip_send_check(ip);
}

/* As __dev_queue_xmit() does. */
static void kt_set_size(struct sk_buff *skb, u32 len, u32 segments)
{
	qdisc_skb_cb(skb)->pkt_len = len;
#ifdef MERCURY_HAS_PKT_SEGS
	qdisc_skb_cb(skb)->pkt_segs = segments;
#endif
}

static struct sk_buff *kt_alloc(u32 len)
{
	/* Once it is asserted that there is memory, no test need look again. */
	struct sk_buff *skb = alloc_skb(len + 64, GFP_KERNEL | __GFP_NOFAIL);

	skb_reserve(skb, 32);
	skb_put_zero(skb, len);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb->protocol = htons(ETH_P_LOOPBACK);
	skb->dev = kt.dev;
	skb->destructor = kt_packet_is_gone;
	kt_name(skb)->id = ++kt.id;
	kt_set_size(skb, len, 1);
	atomic_inc(&kt.alive);
	return skb;
}

static struct sk_buff *kt_make(struct kt_packet packet)
{
	struct sk_buff *skb = kt_alloc(packet.len ?: KT_LEN);

	kt_name(skb)->flow = packet.flow;
	if (packet.dscp || packet.ecn)
		kt_make_ip(skb, packet.dscp << 2 | packet.ecn);
	if (packet.truesize)
		skb->truesize = packet.truesize;
	if (packet.ack)
		skb_set_tcp_pure_ack(skb);
	if ((packet.ack || packet.txtime) && kt.sock)
		skb->sk = kt.sock->sk;
	skb->tstamp = packet.txtime;
	skb->mark = packet.mark;
	skb->priority = packet.priority;
	return skb;
}

/* Free what enqueue has dropped, and remember it. */
static void kt_take_drops(struct sk_buff *to_free)
{
	struct sk_buff *skb;

	kt.drops = 0;
	while ((skb = to_free)) {
		to_free = skb->next;
		skb_mark_not_on_list(skb);
		if (kt.drops < KT_DROPS) {
			kt.dropped[kt.drops] = kt_name(skb)->id;
			kt.dropped_flow[kt.drops] = kt_name(skb)->flow;
		}
		kt.drops++;
		kt.lost++;
		kfree_skb(skb);
	}
}

static int kt_enqueue(struct sk_buff *skb)
{
	struct Qdisc *top = kt.parent ?: kt.sch;
	struct sk_buff *to_free = NULL;
	int ret;

	kt.given++;
	rtnl_lock();
	sch_tree_lock(kt.sch);
	ret = top->enqueue(skb, top, &to_free);
	sch_tree_unlock(kt.sch);
	rtnl_unlock();
	kt_take_drops(to_free);
	kt_step_done();
	return ret;
}

/* Give the qdisc a packet; what enqueue returned. kt.id is its name. */
#define kt_put(...) kt_enqueue(kt_make((struct kt_packet){ __VA_ARGS__ }))

static struct sk_buff *kt_dequeue(void)
{
	struct Qdisc *top = kt.parent ?: kt.sch;
	struct sk_buff *skb;

	rtnl_lock();
	sch_tree_lock(kt.sch);
	skb = kt.parent ? top->dequeue(top) : qdisc_dequeue_peeked(top);
	sch_tree_unlock(kt.sch);
	rtnl_unlock();
	kt_step_done();
	return skb;
}

/* The name of the next packet, which is sent; 0: there is none now. */
static u32 kt_get(void)
{
	struct sk_buff *skb = kt_dequeue();
	u32 id;

	if (!skb)
		return 0;
	kt.got++;
	kt.len = qdisc_pkt_len(skb);
	kt.flow = kt_name(skb)->flow;
	id = kt_name(skb)->id;
	kfree_skb(skb);
	return id;
}

/* Look at the next packet, as a parent that shapes does. */
static u32 kt_peek(void)
{
	struct sk_buff *skb;
	u32 id;

	rtnl_lock();
	sch_tree_lock(kt.sch);
	skb = kt.sch->ops->peek(kt.sch);
	id = skb ? kt_name(skb)->id : 0;
	sch_tree_unlock(kt.sch);
	rtnl_unlock();
	kt_step_done();
	return id;
}

/* These packets, by name, are sent next. */
#define kt_expect_sent(_test, ...)                                               \
	do {                                                                     \
		const u32 ids[] = { __VA_ARGS__ };                               \
		u32 place;                                                       \
										 \
		for (place = 0; place < ARRAY_SIZE(ids); place++)                \
			KUNIT_EXPECT_EQ_MSG(_test, kt_get(), ids[place],         \
					    "packet %u of those expected", place); \
	} while (0)

struct kt_place {
	u32 job;
	u32 band;
};

/* Where a packet is queued; job MERCURY_DEFAULT: not in a band. */
static struct kt_place kt_find(u32 id)
{
	const struct mercury_core *core = kt_core();
	struct kt_place at;
	struct sk_buff *skb;

	for (at.job = 0; at.job < core->jobs; at.job++)
		for (at.band = 0; at.band < core->bands; at.band++)
			list_for_each_entry(skb, &kt_band(at.job, at.band)->queue, list)
				if (kt_name(skb)->id == id)
					return at;
	return (struct kt_place){ .job = MERCURY_DEFAULT };
}

/* The packet made last is in this band. */
static void kt_expect_at(struct kunit *test, u32 job, u32 band)
{
	struct kt_place at = kt_find(kt.id);

	KUNIT_EXPECT_EQ(test, at.job, job);
	if (job != MERCURY_DEFAULT)
		KUNIT_EXPECT_EQ(test, at.band, band);
}

/* The packet made last is in the default class. */
static void kt_expect_unmarked(struct kunit *test)
{
	kt_expect_at(test, MERCURY_DEFAULT, 0);
	KUNIT_EXPECT_GT(test, kt_q()->child->q.qlen, 0);
}

/* Send all that is queued, waiting for the shaper where it says so. */
static void kt_drain(void)
{
	kt.child_holds = false;
	while (kt.sch->q.qlen) {
		if (kt_get())
			continue;
		if (kt_timer <= kt_now) {
			KUNIT_FAIL(kt.test, "%u packets are queued and none comes",
				   kt.sch->q.qlen);
			return;
		}
		kt_now = kt_timer;
	}
}

/* --- Before and after each case -------------------------------------------------------- */

static const struct net_device_ops kt_netdev_ops = {};

static void kt_setup_device(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &kt_netdev_ops;
	dev->needs_free_netdev = true;
	dev->min_mtu = 0;
	dev->max_mtu = 0;
}

static int kt_case_init(struct kunit *test)
{
	int err;

	kt = (struct kt){ .test = test, .handle = KT_HANDLE };
	kt_now = KT_START;
	kt_timer = 0;
	kt_no_memory = false;
	kt_woken = false;
	kt.default_ops = default_qdisc_ops;
	default_qdisc_ops = &pfifo_fast_ops;
	kt.dev = alloc_netdev(0, "kt%d", NET_NAME_UNKNOWN, kt_setup_device);
	if (!kt.dev)
		return -ENOMEM;
	rtnl_lock();
	err = register_netdevice(kt.dev);
	if (err) {
		rtnl_unlock();
		free_netdev(kt.dev);
		kt.dev = NULL;
		return err;
	}
	kt.parent = kt_new_qdisc(&kt_parent_ops, TC_H_ROOT);
	if (kt.parent) {
		kt.parent->handle = KT_PARENT;
		kt_set_root(kt.parent);
	}
	rtnl_unlock();
	return kt.parent ? 0 : -ENOMEM;
}

/* Every case ends with an empty qdisc, and with every packet accounted for. */
static void kt_case_finish(struct kunit *test)
{
	kt_drain();
	kt_check();
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 0);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.backlog, 0);
	KUNIT_EXPECT_EQ(test, kt_core()->memory, 0);
	KUNIT_EXPECT_EQ(test, kt_core()->active & ~BIT_ULL(MERCURY_DEFAULT), 0);
	kt_destroy();
}

static void kt_case_exit(struct kunit *test)
{
	if (kt.sch) {
		RCU_INIT_POINTER(kt_q()->filter_list, NULL);
		kt_case_finish(test);
	}
	rtnl_lock();
	if (kt.dev)
		kt_set_root(&noop_qdisc);
	qdisc_put(kt.parent);
	if (kt.dev)
		unregister_netdevice(kt.dev);
	rtnl_unlock();
	default_qdisc_ops = kt.default_ops;
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&kt.alive), 0, "packets were leaked");
	if (kt.sock)
		sock_release(kt.sock);
}

#define KT_SUITE(_name)                                  \
	static struct kunit_suite mercury_##_name##_suite = { \
		.name = "mercury_" #_name,               \
		.init = kt_case_init,                    \
		.exit = kt_case_exit,                    \
		.test_cases = mercury_##_name##_cases,   \
	}

#endif /* _MERCURY_FIXTURE_H */
