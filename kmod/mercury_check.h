/* SPDX-License-Identifier: GPL-2.0 */
/* Kernels with CONFIG_DEBUG_NET check themselves; this costs a look at every packet. */
#ifndef _MERCURY_CHECK_H
#define _MERCURY_CHECK_H

struct mercury_core;
struct Qdisc;

#ifdef CONFIG_DEBUG_NET
void mercury_check_core(const struct mercury_core *core);
void mercury_check_locked(struct Qdisc *sch, const struct mercury_core *core);
#else
static inline void mercury_check_core(const struct mercury_core *core)
{
}

static inline void mercury_check_locked(struct Qdisc *sch, const struct mercury_core *core)
{
}
#endif

#endif /* _MERCURY_CHECK_H */
