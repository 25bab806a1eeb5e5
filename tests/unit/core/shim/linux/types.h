/* SPDX-License-Identifier: GPL-2.0 */
/* What mercury_core needs of the kernel's types, in user space. */
#ifndef SHIM_LINUX_TYPES_H
#define SHIM_LINUX_TYPES_H

#include_next <linux/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define S64_MIN INT64_MIN

#endif
