/* SPDX-License-Identifier: GPL-2.0 */
/* Every difference between kernels that sch_mercury meets. Kbuild probes them. */
#ifndef _MERCURY_COMPAT_H
#define _MERCURY_COMPAT_H

#include <net/pkt_cls.h>
#include <net/sch_generic.h>

/* 6.5 moved GSO out of linux/netdevice.h. */
#ifdef MERCURY_HAS_GSO_H
#include <net/gso.h>
#endif

/*
 * A qdisc cannot carry out TC_ACT_REDIRECT (CVE-2026-68441): kernels that know
 * have a function that turns it into TC_ACT_SHOT.
 */
static inline int mercury_tcf_classify(struct sk_buff *skb, const struct tcf_proto *tp,
				       struct tcf_result *res)
{
#ifdef MERCURY_HAS_CLASSIFY_QDISC
	return tcf_classify_qdisc(skb, tp, res, false);
#else
	int ret = tcf_classify(skb, NULL, tp, res, false);

	return ret == TC_ACT_REDIRECT ? TC_ACT_SHOT : ret;
#endif
}

/* 7.0 counts the segments of a packet beside its length. */
static inline void mercury_set_pkt_len(struct sk_buff *segment)
{
	qdisc_skb_cb(segment)->pkt_len = segment->len;
#ifdef MERCURY_HAS_PKT_SEGS
	qdisc_skb_cb(segment)->pkt_segs = 1;
#endif
}

/* Packets on the wire, as in the kernel's own counters. */
static inline u32 mercury_pkt_segs(const struct sk_buff *skb)
{
#ifdef MERCURY_HAS_PKT_SEGS
	return qdisc_pkt_segs(skb);
#else
	return skb_is_gso(skb) ? skb_shinfo(skb)->gso_segs : 1;
#endif
}

/* 7.0 tells drop monitors why a qdisc dropped a packet. */
static inline int mercury_drop_overlimit(struct sk_buff *skb, struct Qdisc *sch,
					 struct sk_buff **to_free)
{
#ifdef MERCURY_HAS_DROP_REASON
	return qdisc_drop_reason(skb, sch, to_free, QDISC_DROP_OVERLIMIT);
#else
	return qdisc_drop(skb, sch, to_free);
#endif
}

/*
 * Refuse an attribute with a sentence from a table. The kernel's own macros
 * take literals only, and formatted messages came with 6.2.
 */
static inline int mercury_refuse(struct netlink_ext_ack *extack, const struct nlattr *attr,
				 const char *message)
{
	if (extack) {
		extack->_msg = message;
		extack->bad_attr = attr;
	}
	return -EINVAL;
}

#endif /* _MERCURY_COMPAT_H */
