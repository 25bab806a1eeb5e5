/* SPDX-License-Identifier: MIT */
/*
 * How programs give sockets what they are to get. The numbers are those of headers that cannot be
 * included where there is no C library.
 */
#ifndef MERCURY_BPF_TREATMENT_H
#define MERCURY_BPF_TREATMENT_H

/* The headers of libbpf need those of the kernel before them. */
// clang-format off
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
// clang-format on

#include "layout.h"

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_PRIORITY 12
#define SO_MARK 36
#define SOL_IP 0
#define IP_TOS 1
#define SOL_IPV6 41
#define IPV6_TCLASS 67

/* The DSCP goes before the priority, which IP_TOS sets as well. */
static __always_inline long treat(void* context, const struct mercury_treatment* treatment,
                                  const int ipv6) {
    int mark = treatment->mark, priority = treatment->priority, tos = treatment->dscp << 2;
    long failed = bpf_setsockopt(context, SOL_SOCKET, SO_MARK, &mark, sizeof(mark));

    if (treatment->sets_dscp) {
        /* Of a socket of IPv6, for what it sends as IPv4; not possible on all kernels. */
        long ipv4 = bpf_setsockopt(context, SOL_IP, IP_TOS, &tos, sizeof(tos));

        failed |= ipv6 ? bpf_setsockopt(context, SOL_IPV6, IPV6_TCLASS, &tos, sizeof(tos)) : ipv4;
    }
    return failed | bpf_setsockopt(context, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority));
}

#endif
