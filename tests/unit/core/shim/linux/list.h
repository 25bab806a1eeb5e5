/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_LIST_H
#define SHIM_LINUX_LIST_H

struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

#endif
