/* SPDX-License-Identifier: GPL-2.0 */
/* The five entry points of the plugin, as tc calls them: see struct qdisc_util. */
#ifndef Q_MERCURY_H
#define Q_MERCURY_H

#include "tc_api.h"

/* request.c */
int mercury_parse_qopt(const struct qdisc_util *qu, int argc, char **argv,
		       struct nlmsghdr *n, const char *dev);
int mercury_parse_copt(const struct qdisc_util *qu, int argc, char **argv,
		       struct nlmsghdr *n, const char *dev);

/* show.c */
int mercury_print_qopt(const struct qdisc_util *qu, FILE *f,
		       struct rtattr *opt);
int mercury_print_copt(const struct qdisc_util *qu, FILE *f,
		       struct rtattr *opt);
int mercury_print_xstats(const struct qdisc_util *qu, FILE *f,
			 struct rtattr *xstats);

#endif /* Q_MERCURY_H */
