// SPDX-License-Identifier: MIT
/*
 * setsockopt(fd, MERCURY_SOL, MERCURY_SO_LAYER, ...) of mercury.h: a program without privileges
 * marks its own socket for a layer of a job that the daemon has given to its user. Nobody gets at
 * the jobs of others: the key is the user that the kernel knows.
 */
#include <linux/errno.h>

#include "hints/mercury.h"
#include "treatment.bpf.h"

/* What is longer is passed on as it is: the kernel gives a program no more of it than a page. */
#define PAGE_BYTES 4096

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MERCURY_JOBS_KNOWN);
    __type(key, struct mercury_job_key);
    __type(value, struct mercury_job_layers);
} jobs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} marked SEC(".maps");

/* What the caller gets. */
static __always_inline int refuse(int error) {
    bpf_set_retval(-error);
    return 0;
}

/* The number of the class, or one that there is not. Without a branch for each, as in rules.bpf.c.
 */
static __always_inline __u32 class_of(const struct mercury_job_layers* layers, __u32 layer) {
    __u32 before = 0;

#pragma unroll
    for (int i = 0; i < MERCURY_CLASSES_MAX; ++i) {
        __u64 passed = (__u64)layers->last_layer[i] - layer;

        asm volatile("" : "+r"(passed));
        before += passed >> 63;
    }
    return before;
}

/* A new mark would reorder what is underway. */
static __always_inline int is_busy(struct bpf_sock* sk) {
    const struct bpf_tcp_sock* tcp = bpf_tcp_sock(sk);

    return tcp && tcp->snd_una != tcp->snd_nxt;
}

SEC("cgroup/setsockopt")
int layer_option(struct bpf_sockopt* context) {
    const struct mercury_socket_layer* wanted = context->optval;
    const struct mercury_treatment* treatment;
    const struct mercury_job_layers* layers;
    struct mercury_job_key key = {};
    struct bpf_sock* sk;
    __u32 class, zero = 0;
    __u64* count;

    if (context->level != MERCURY_SOL) {
        if (context->optlen > PAGE_BYTES)
            context->optlen = 0;
        return 1;
    }
    sk = context->sk;
    if (!sk || context->optname != MERCURY_SO_LAYER ||
        (sk->protocol != IPPROTO_TCP && sk->protocol != IPPROTO_UDP))
        return refuse(ENOPROTOOPT);
    if (context->optlen != sizeof(*wanted) || (void*)(wanted + 1) > context->optval_end)
        return refuse(EINVAL);
    key.user = (__u32)bpf_get_current_uid_gid();
    key.job = wanted->job;
    layers = bpf_map_lookup_elem(&jobs, &key);
    if (!layers)
        return refuse(ENOENT);
    class = class_of(layers, wanted->layer);
    if (class >= MERCURY_CLASSES_MAX)
        return refuse(ENOENT);
    treatment = &layers->treatments[class];
    if (!treatment->mark)
        return refuse(ENOENT);
    if (sk->mark != treatment->mark && is_busy(sk))
        return refuse(EBUSY);
    if (treat(sk, treatment, sk->family == AF_INET6))
        return refuse(EIO);
    count = bpf_map_lookup_elem(&marked, &zero);
    if (count)
        __sync_fetch_and_add(count, 1);
    context->optlen = -1; /* done: the kernel need not look at it */
    return 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
