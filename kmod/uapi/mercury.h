/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The contract between sch_mercury and everything that talks to it: the mark
 * that a packet carries, the classids, and the netlink attributes. The kernel
 * module, the tc plugin, the daemon and the tests include this file; nothing
 * in it is written down twice.
 *
 * All attributes are optional and in host byte order. Unknown ones are refused
 * in requests and must be ignored in dumps, so that versions can be mixed.
 */
#ifndef _UAPI_MERCURY_H
#define _UAPI_MERCURY_H

#include <linux/types.h>

#define MERCURY_KIND "mercury"

/*
 * The mark.
 *
 * layer = (key & mask) >> ctz(mask), job = (key & job_mask) >> ctz(job_mask).
 * Layer 0 is unmarked and goes to the default class; layer L >= 1 goes to band
 * min(L, bands) - 1 of job min(job, jobs - 1). Band 0 is sent first.
 */
#define MERCURY_MASK_DEFAULT 0x0000ffffU
#define MERCURY_MASK_BITS 16 /* at most, in one run */
#define MERCURY_JOB_MASK_DEFAULT 0x00ff0000U
#define MERCURY_JOB_MASK_BITS 8 /* at most, in one run; none: one job */

/* Where the key comes from (TCA_MERCURY_KEY). */
enum mercury_key {
	MERCURY_KEY_MARK,     /* skb->mark, SO_MARK */
	MERCURY_KEY_PRIORITY, /* skb->priority, SO_PRIORITY */
	MERCURY_KEY_DSCP,     /* the six bits of the IPv4 or IPv6 header */
	__MERCURY_KEY_MAX
};

/* Sizes: of the arrays (jobs, bands), and of what an option may be set to. */
#define MERCURY_JOBS_MIN 1
#define MERCURY_JOBS_MAX 62
#define MERCURY_JOBS_DEFAULT 16
#define MERCURY_BANDS_MIN 2
#define MERCURY_BANDS_MAX 1024
#define MERCURY_BANDS_DEFAULT 64
#define MERCURY_LIMIT_MIN 1U /* packets */
#define MERCURY_LIMIT_MAX 0x7fffffffU
#define MERCURY_LIMIT_DEFAULT 100000U
#define MERCURY_MEMORY_MIN 0x100000U /* bytes of truesize: the largest packets fit */
#define MERCURY_MEMORY_MAX 0xffffffffU
#define MERCURY_MEMORY_DEFAULT 0x10000000U
#define MERCURY_SHARE_MIN 1 /* per cent of the link for the default class */
#define MERCURY_SHARE_MAX 99
#define MERCURY_SHARE_DEFAULT 10
#define MERCURY_RESCUE_MIN 0 /* per cent of what the job sends */
#define MERCURY_RESCUE_MAX 100
#define MERCURY_RESCUE_DEFAULT 10
#define MERCURY_WEIGHT_MIN 1
#define MERCURY_WEIGHT_MAX 1000
#define MERCURY_WEIGHT_DEFAULT 1
#define MERCURY_RATE_MIN 125ULL	/* bytes a second: 1 kbit/s */
#define MERCURY_RATE_MAX 1250000000000ULL /* 10 Tbit/s */
#define MERCURY_TIME_MIN 1000ULL /* ns: deadline, ce_threshold */
#define MERCURY_TIME_MAX 3600000000000ULL
#define MERCURY_DEADLINE_DEFAULT 100000000ULL /* ns */
/* Instead of a time: no deadline, no ECN threshold. */
#define MERCURY_TIME_NONE 0xffffffffffffffffULL

/* With split_gso auto (MERCURY_SPLIT_AUTO), GSO packets are split below this. */
#define MERCURY_SPLIT_RATE 125000000ULL /* bytes a second: 1 Gbit/s */

/*
 * Classids, minor part. Band b of job j is 1:(j * 0x400 + b + 1), job j is
 * 1:(0xfc00 + j), the default class of unmarked packets is 1:ffff.
 */
#define MERCURY_MINOR_BAND(job, band) ((job) * 0x400U + (band) + 1U)
#define MERCURY_MINOR_JOB(job) (0xfc00U + (job))
#define MERCURY_MINOR_DEFAULT 0xffffU

/* TCA_OPTIONS of the qdisc, in requests and dumps. */
enum {
	TCA_MERCURY_UNSPEC,
	TCA_MERCURY_PAD,
	TCA_MERCURY_JOBS,	   /* u32 */
	TCA_MERCURY_BANDS,	   /* u32, bands of each job */
	TCA_MERCURY_LIMIT,	   /* u32, packets in all bands */
	TCA_MERCURY_MEMORY_LIMIT,  /* u32, bytes of truesize in all bands */
	TCA_MERCURY_KEY,	   /* u8, enum mercury_key */
	TCA_MERCURY_MASK,	   /* u32 */
	TCA_MERCURY_JOB_MASK,	   /* u32 */
	TCA_MERCURY_DEFAULT_SHARE, /* u32, per cent */
	TCA_MERCURY_RESCUE,	   /* u32, per cent; 0: off */
	TCA_MERCURY_RATE,	   /* u64, bytes a second; 0: no shaping */
	TCA_MERCURY_SPLIT_GSO,	   /* u8, enum mercury_split */
	TCA_MERCURY_ACK_FIRST,	   /* u8, 0 or 1 */
	TCA_MERCURY_CE_THRESHOLD,  /* u64, ns of sojourn, or MERCURY_TIME_NONE */
	TCA_MERCURY_DEADLINES,	   /* nest of TCA_MERCURY_DEADLINE, in order */
	__TCA_MERCURY_MAX
};
#define TCA_MERCURY_MAX (__TCA_MERCURY_MAX - 1)

enum mercury_split {
	MERCURY_SPLIT_OFF,
	MERCURY_SPLIT_ON,
	MERCURY_SPLIT_AUTO, /* on if a rate below MERCURY_SPLIT_RATE is set */
	__MERCURY_SPLIT_MAX
};

/* Within TCA_MERCURY_DEADLINES; a later entry overrides an earlier one. */
enum {
	TCA_MERCURY_DEADLINE_UNSPEC,
	TCA_MERCURY_DEADLINE, /* struct mercury_deadline */
	__TCA_MERCURY_DEADLINE_MAX
};
#define TCA_MERCURY_DEADLINE_MAX (__TCA_MERCURY_DEADLINE_MAX - 1)

#define MERCURY_EVERY_JOB 0xffffU

/*
 * Entries of one request, which are applied under a lock. A dump lists runs of
 * bands whose deadline is not MERCURY_DEADLINE_DEFAULT, at most as many, so that
 * it always fits a netlink message; the class dump has the deadline of every
 * band that has carried a packet.
 */
#define MERCURY_DEADLINES_MAX 64

struct mercury_deadline {
	__u16 job;   /* from 0, or MERCURY_EVERY_JOB */
	__u16 first; /* first band, from 0 */
	__u16 last;  /* last band, not below first */
	__u16 pad;   /* 0 */
	__u64 time;  /* ns after enqueue, or MERCURY_TIME_NONE */
};

/* TCA_OPTIONS of a class. A job has a weight and a limit, a band the others. */
enum {
	TCA_MERCURY_CLASS_UNSPEC,
	TCA_MERCURY_CLASS_PAD,
	TCA_MERCURY_CLASS_WEIGHT,   /* u32 */
	TCA_MERCURY_CLASS_LIMIT,    /* u32, packets; 0: none of its own */
	TCA_MERCURY_CLASS_DEADLINE, /* u64, ns or MERCURY_TIME_NONE */
	TCA_MERCURY_CLASS_JOB,	    /* u32, dumps only, of a job or a band */
	TCA_MERCURY_CLASS_BAND,	    /* u32, dumps only, of a band */
	__TCA_MERCURY_CLASS_MAX
};
#define TCA_MERCURY_CLASS_MAX (__TCA_MERCURY_CLASS_MAX - 1)

/* TCA_STATS_APP of the qdisc (Q), a job (J) or a band (B). */
enum {
	TCA_MERCURY_STATS_UNSPEC,
	TCA_MERCURY_STATS_PAD,
	TCA_MERCURY_STATS_MEMORY,	 /* QJB u64, bytes of truesize queued */
	TCA_MERCURY_STATS_MEMORY_PEAK,	 /* Q   u64 */
	TCA_MERCURY_STATS_ACTIVE_JOBS,	 /* Q   u32, with a backlog now */
	TCA_MERCURY_STATS_DROP_LIMIT,	 /* QJB u64, packets pushed out by a packet limit */
	TCA_MERCURY_STATS_DROP_MEMORY,	 /* QJB u64, ... by memory_limit */
	TCA_MERCURY_STATS_DROP_FILTER,	 /* Q   u64, ... by the verdict of a filter */
	TCA_MERCURY_STATS_DROP_GSO,	 /* Q   u64, ... that could not be segmented */
	TCA_MERCURY_STATS_SPLIT,	 /* Q   u64, GSO packets split */
	TCA_MERCURY_STATS_ACKS,		 /* QJ  u64, pure ACKs put first */
	TCA_MERCURY_STATS_CE_MARKS,	 /* QJB u64, packets */
	TCA_MERCURY_STATS_MET,		 /* QJB u64, packets sent by their deadline */
	TCA_MERCURY_STATS_MISSED,	 /* QJB u64, packets sent after it */
	TCA_MERCURY_STATS_LATENESS,	 /* QJB u64, ns, sum over the missed */
	TCA_MERCURY_STATS_LATENESS_MAX,	 /* QJB u64, ns */
	TCA_MERCURY_STATS_RESCUED,	 /* QJB u64, packets sent out of turn */
	TCA_MERCURY_STATS_RESCUED_BYTES, /* QJB u64 */
	TCA_MERCURY_STATS_SOJOURN,	 /* B   u64[], see MERCURY_SOJOURN_BUCKETS */
	__TCA_MERCURY_STATS_MAX
};
#define TCA_MERCURY_STATS_MAX (__TCA_MERCURY_STATS_MAX - 1)

/*
 * Sojourn time histogram: bucket 0 counts packets that waited less than
 * 1024 ns, bucket i those that waited less than 1024 << i ns and were not
 * counted before; the last one has no upper bound. A dump may have any number.
 */
#define MERCURY_SOJOURN_SHIFT 10
#define MERCURY_SOJOURN_BUCKETS 24

#endif /* _UAPI_MERCURY_H */
