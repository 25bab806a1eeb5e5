/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_BITOPS_H
#define SHIM_LINUX_BITOPS_H

#include <linux/types.h>

#define BITS_PER_LONG (8 * sizeof(long))
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))

/* Undefined for 0, as in the kernel. */
static inline u32 __ffs(unsigned long word)
{
	return (u32)__builtin_ctzl(word);
}

static inline u32 __fls(unsigned long word)
{
	return (u32)(BITS_PER_LONG - 1) - (u32)__builtin_clzl(word);
}

static inline u32 __ffs64(u64 word)
{
	return (u32)__builtin_ctzll(word);
}

/* 1 + the number of the highest bit, or 0. */
static inline u32 fls64(u64 word)
{
	return word ? 64U - (u32)__builtin_clzll(word) : 0;
}

#endif
