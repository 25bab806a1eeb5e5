/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_CACHE_H
#define SHIM_LINUX_CACHE_H

#define ____cacheline_aligned __attribute__((__aligned__(64)))

#endif
