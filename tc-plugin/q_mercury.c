// SPDX-License-Identifier: GPL-2.0
/*
 * q_mercury.c - the tc plugin of sch_mercury
 *
 * tc loads q_mercury.so when it meets the word "mercury", looks this object up
 * and calls it: with a command line, to be turned into the netlink attributes
 * of mercury.h (request.c), or with a dump of them, to be shown (show.c).
 */
#include "mercury.h"
#include "q_mercury.h"

__attribute__((visibility("default"))) struct qdisc_util mercury_qdisc_util = {
	.id = MERCURY_KIND,
	.parse_qopt = mercury_parse_qopt,
	.print_qopt = mercury_print_qopt,
	.print_xstats = mercury_print_xstats,
	.parse_copt = mercury_parse_copt,
	.print_copt = mercury_print_copt,
};
