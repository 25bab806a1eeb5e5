// SPDX-License-Identifier: MIT
/*
 * For the host's end of a container's veth, at ingress: gives a packet the mark of its socket back,
 * which the kernel clears when a packet leaves its network namespace. The socket is still known
 * there. A packet that has a mark, or comes from no socket of this machine, stays as it is.
 *
 *     tc qdisc add dev VETH clsact
 *     tc filter add dev VETH ingress bpf direct-action object-file restore.bpf.o section tc
 */
/* The headers of libbpf need those of the kernel before them. */
// clang-format off
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
// clang-format on

SEC("tc")
int restore(struct __sk_buff* skb) {
    struct bpf_sock* sk = skb->sk;

    if (!sk || skb->mark)
        return TC_ACT_UNSPEC;
    sk = bpf_sk_fullsock(sk); /* not one that is being made, or has ended */
    if (sk)
        skb->mark = sk->mark;
    return TC_ACT_UNSPEC; /* for the filters that come after it */
}

char _license[] SEC("license") = "Dual MIT/GPL";
