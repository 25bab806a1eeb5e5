/* SPDX-License-Identifier: MIT */
/*
 * What the programs in the kernel and the daemon tell each other through maps. Both include this.
 * Numbers are in the order of the host, addresses as they are on the wire; one of IPv4 is mapped
 * into IPv6 (::ffff:a.b.c.d), so that there is one kind of them.
 */
#ifndef MERCURY_BPF_LAYOUT_H
#define MERCURY_BPF_LAYOUT_H

#include <linux/types.h>

#define MERCURY_RULES_MAX 16
#define MERCURY_LISTENERS_MAX 4096
#define MERCURY_COMMAND_BYTES 16 /* TASK_COMM_LEN: 15 and a 0 */
#define MERCURY_CGROUP_DEPTH 8   /* below the root */

/* What a socket gets. */
struct mercury_treatment {
    __u32 mark; /* never 0: that is no mark */
    __u32 priority;
    __u32 dscp;
    __u32 sets_dscp;
};

#define MERCURY_NOBODY 0xffffffffU /* no user */
#define MERCURY_NO_CGROUP (~0ULL)  /* nobody is in it */

/* Who makes or serves connections. */
struct mercury_identity {
    __u64 cgroups[MERCURY_CGROUP_DEPTH]; /* from below the root to its own; 0: not so deep */
    __u64 command[MERCURY_COMMAND_BYTES / 8];
    __u32 user;
    __u32 unused;
};

struct mercury_ports {
    __u16 first;
    __u16 last;
};

/*
 * All conditions must hold. Masks are 0 where there is no condition, and otherwise have all bits
 * that count: so that a rule can be looked at without a branch, see rules.bpf.c.
 */
struct mercury_rule {
    __u64 cgroup;
    __u64 cgroup_mask;
    __u64 command[MERCURY_COMMAND_BYTES / 8];
    __u64 command_mask;
    __u32 user;
    __u32 user_mask;
    __u32 remote[4];
    __u32 remote_mask[4];
    struct mercury_ports local_port;
    struct mercury_ports remote_port;
    struct mercury_treatment treatment; /* its mark is 0 behind the last rule */
};

/* Whose job it is, and its number in the marks. */
struct mercury_job_key {
    __u32 user;
    __u32 job;
};

#define MERCURY_JOBS_KNOWN 256
#define MERCURY_CLASSES_MAX 32

/* The layers of a job, in classes from the first one. There are none behind one without a mark. */
struct mercury_job_layers {
    __u32 last_layer[MERCURY_CLASSES_MAX];
    struct mercury_treatment treatments[MERCURY_CLASSES_MAX];
};

struct mercury_rule_counters {
    __u64 matched; /* sockets that were marked */
    __u64 failed;  /* that the kernel did not let be marked in full */
};

#endif
