// SPDX-License-Identifier: MIT
/*
 * Marks sockets by rules, before the first packet with data: those that connect at connect(), those
 * that are accepted when the handshake is over.
 *
 * Who a connection belongs to is known only where its process is at work, and that is not so when
 * a handshake ends. It is therefore noted at bind() who has bound an address. (A note in the
 * socket, which the kernel hands on to what is accepted from it, would be the exact way. But
 * Linux 7.3 cannot make it on machines without cmpxchg16b, and the test bed is one of these.)
 *
 * A socket that has a mark keeps it. Needs no type of the kernel's own, hence no BTF of it.
 */
#include "treatment.bpf.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MERCURY_RULES_MAX);
    __type(key, __u32);
    __type(value, struct mercury_rule);
} rules SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MERCURY_RULES_MAX);
    __type(key, __u32);
    __type(value, struct mercury_rule_counters);
} counters SEC(".maps");

struct bound {
    __u64 network; /* namespace */
    __u32 address[4];
    __u16 port;
    __u16 unused[3];
};

/* Who bound an address last, or is still listening there and had connections since. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, MERCURY_LISTENERS_MAX);
    __type(key, struct bound);
    __type(value, struct mercury_identity);
} listeners SEC(".maps");

/* One that is being made or accepted. */
struct connection {
    __u32 remote[4];
    __u16 local_port; /* 0: not bound yet */
    __u16 remote_port;
};

static __always_inline void identify(struct mercury_identity* self, const int with_command) {
    self->user = (__u32)bpf_get_current_uid_gid();
#pragma unroll
    for (int i = 0; i < MERCURY_CGROUP_DEPTH; ++i)
        self->cgroups[i] = bpf_get_current_ancestor_cgroup_id(i + 1);
    if (with_command)
        bpf_get_current_comm(self->command, sizeof(self->command));
}

/*
 * 0 if they are the same, else 1, and 0 or 1 if a number is in a range or not, without a branch:
 * where a program has no CAP_PERFMON the kernel also follows each branch as a processor that
 * guesses might, and with a few of them for each rule that is too much for Linux 6.1.
 */
static __always_inline __u64 differ(__u64 a, __u64 b) {
    __u64 bits = a ^ b;

    asm volatile("" : "+r"(bits)); /* or the compiler finds that there could be a branch */
    return (bits | -bits) >> 63;
}

static __always_inline __u64 is_outside(__u64 port, const struct mercury_ports* range) {
    __u64 below = port - range->first, above = range->last - port;

    asm volatile("" : "+r"(below), "+r"(above));
    return (below | above) >> 63;
}

/* 0 if RULE fits. */
static __always_inline __u64 misses(const struct mercury_rule* rule,
                                    const struct mercury_identity* self,
                                    const struct connection* connection) {
    __u64 bits = is_outside(connection->local_port, &rule->local_port) |
                 is_outside(connection->remote_port, &rule->remote_port);
    __u64 elsewhere = 1;

#pragma unroll
    for (int i = 0; i < 4; ++i)
        bits |= (connection->remote[i] ^ rule->remote[i]) & rule->remote_mask[i];
    bits |= (self->user ^ rule->user) & rule->user_mask;
    bits |= ((self->command[0] ^ rule->command[0]) | (self->command[1] ^ rule->command[1])) &
            rule->command_mask;
#pragma unroll
    for (int i = 0; i < MERCURY_CGROUP_DEPTH; ++i)
        elsewhere &= differ(self->cgroups[i], rule->cgroup);
    return bits | (elsewhere & rule->cgroup_mask);
}

/* The number of the first one, or of none. */
static __always_inline __u32 rule_for(const struct mercury_identity* self,
                                      const struct connection* connection) {
    for (__u32 i = 0; i < MERCURY_RULES_MAX; ++i) {
        __u32 index = i; /* its address is given away: the bound of the loop is not */
        const struct mercury_rule* rule = bpf_map_lookup_elem(&rules, &index);

        if (!rule || !rule->treatment.mark)
            break;
        if (!misses(rule, self, connection))
            return i;
    }
    return MERCURY_RULES_MAX;
}

static __always_inline void apply_rules(void* context, const int family,
                                        const struct mercury_identity* self,
                                        const struct connection* connection) {
    __u32 index = rule_for(self, connection);
    /* Looked up again: the kernel is easier convinced that this one is there. */
    const struct mercury_rule* rule = bpf_map_lookup_elem(&rules, &index);
    struct mercury_rule_counters* counter = bpf_map_lookup_elem(&counters, &index);
    int failed;

    if (!rule || !counter)
        return;
    failed = treat(context, &rule->treatment, family == AF_INET6) != 0;
    /* Both: a pointer to either would need CAP_PERFMON. */
    __sync_fetch_and_add(&counter->failed, failed);
    __sync_fetch_and_add(&counter->matched, !failed);
}

static __always_inline void map_ipv4(__u32* remote, __u32 address) {
    remote[2] = bpf_htonl(0xffff);
    remote[3] = address;
}

/* Word by word, as the kernel wants its contexts to be read. */
static __always_inline void copy_ipv6(__u32* to, const volatile __u32* from) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
        to[i] = from[i];
}

static __always_inline int on_connect(struct bpf_sock_addr* context, const int family,
                                      const int with_command) {
    struct mercury_identity self = {};
    struct connection connection = {};
    struct bpf_sock* sk = context->sk;

    if (!sk || sk->mark || (context->protocol != IPPROTO_TCP && context->protocol != IPPROTO_UDP))
        return 1;
    if (family == AF_INET) {
        map_ipv4(connection.remote, context->user_ip4);
    } else {
        copy_ipv6(connection.remote, context->user_ip6);
    }
    connection.remote_port = bpf_ntohs(context->user_port);
    connection.local_port = sk->src_port;
    identify(&self, with_command);
    apply_rules(context, family, &self, &connection);
    return 1;
}

static __always_inline int on_bind(struct bpf_sock* sk, const int family, const int with_command) {
    struct mercury_identity self = {};
    struct bound bound = {};

    if (sk->protocol != IPPROTO_TCP)
        return 1;
    if (family == AF_INET) {
        map_ipv4(bound.address, sk->src_ip4);
    } else {
        copy_ipv6(bound.address, sk->src_ip6);
    }
    bound.port = sk->src_port;
    bound.network = bpf_get_netns_cookie(sk);
    identify(&self, with_command);
    bpf_map_update_elem(&listeners, &bound, &self, BPF_ANY);
    return 1;
}

/*
 * Twice, since bpf_get_current_comm() may need CAP_PERFMON: those without it are loaded where no
 * rule asks for a command.
 */
SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr* context) {
    return on_connect(context, AF_INET, 0);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr* context) {
    return on_connect(context, AF_INET6, 0);
}

SEC("cgroup/post_bind4")
int bound4(struct bpf_sock* sk) {
    return on_bind(sk, AF_INET, 0);
}

SEC("cgroup/post_bind6")
int bound6(struct bpf_sock* sk) {
    return on_bind(sk, AF_INET6, 0);
}

SEC("cgroup/connect4")
int connect4_command(struct bpf_sock_addr* context) {
    return on_connect(context, AF_INET, 1);
}

SEC("cgroup/connect6")
int connect6_command(struct bpf_sock_addr* context) {
    return on_connect(context, AF_INET6, 1);
}

SEC("cgroup/post_bind4")
int bound4_command(struct bpf_sock* sk) {
    return on_bind(sk, AF_INET, 1);
}

SEC("cgroup/post_bind6")
int bound6_command(struct bpf_sock* sk) {
    return on_bind(sk, AF_INET6, 1);
}

/* At this address, at all of IPv4, at all. */
static __always_inline void find_listener(struct bound* bound, struct mercury_identity* self) {
    const struct mercury_identity* found = bpf_map_lookup_elem(&listeners, bound);

    if (!found && bound->address[2] == bpf_htonl(0xffff)) {
        bound->address[3] = 0;
        found = bpf_map_lookup_elem(&listeners, bound);
    }
    if (!found) {
        bound->address[0] = bound->address[1] = bound->address[2] = bound->address[3] = 0;
        found = bpf_map_lookup_elem(&listeners, bound);
    }
    if (found)
        *self = *found;
}

static __always_inline void on_accept(struct bpf_sock_ops* context, const int family) {
    struct mercury_identity self = {.user = MERCURY_NOBODY};
    struct connection connection = {};
    struct bound bound = {};

    if (family == AF_INET) {
        map_ipv4(connection.remote, context->remote_ip4);
        map_ipv4(bound.address, context->local_ip4);
    } else {
        copy_ipv6(connection.remote, context->remote_ip6);
        copy_ipv6(bound.address, context->local_ip6);
    }
    connection.remote_port = bpf_ntohl(context->remote_port);
    bound.port = connection.local_port = context->local_port;
    bound.network = bpf_get_netns_cookie(context);
    find_listener(&bound, &self);
    apply_rules(context, family, &self, &connection);
}

SEC("sockops")
int accepted(struct bpf_sock_ops* context) {
    struct bpf_sock* sk;

    if (context->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
        return 1;
    sk = context->sk;
    if (!sk || sk->mark)
        return 1;
    if (context->family == AF_INET)
        on_accept(context, AF_INET);
    else if (context->family == AF_INET6)
        on_accept(context, AF_INET6);
    return 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
