/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the plugin uses of the tc binary that loads it.
 *
 * No distribution packages iproute2's headers, so the functions and variables
 * that tc exports to its plugins are declared here, with the types they have
 * from 6.1 on. A name that tc lacks shows up in the LD_BIND_NOW test of
 * tests/plugin/: without it tc says "Unknown qdisc", and nothing else.
 */
#ifndef TC_API_H
#define TC_API_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

/*
 * tc finds this object by its name, <kind>_qdisc_util, and writes its `next`:
 * it must not be const. From 6.9 on tc passes itself the object as a pointer to
 * const; that changes neither the layout nor the call, so one build serves both.
 */
struct qdisc_util {
	struct qdisc_util *next;
	const char *id;
	int (*parse_qopt)(const struct qdisc_util *qu, int argc, char **argv,
			  struct nlmsghdr *n, const char *dev);
	int (*print_qopt)(const struct qdisc_util *qu, FILE *f,
			  struct rtattr *opt);
	int (*print_xstats)(const struct qdisc_util *qu, FILE *f,
			    struct rtattr *xstats);
	int (*parse_copt)(const struct qdisc_util *qu, int argc, char **argv,
			  struct nlmsghdr *n, const char *dev);
	int (*print_copt)(const struct qdisc_util *qu, FILE *f,
			  struct rtattr *opt);
	int (*has_block)(const struct qdisc_util *qu, struct rtattr *opt,
			 uint32_t block_idx, bool *p_has);
};

/* The command line: set by -details. */
extern int show_details;

/* Numbers with tc's units. They take signs, exponents, infinity and overflow. */
int get_rate64(__u64 *rate, const char *str);
int get_size(unsigned int *size, const char *str);
int get_time64(__s64 *time, const char *str);
char *sprint_time64(__s64 time, char *buf);

#define TC_SPRINT_SIZE 64 /* of the buffer for sprint_time64() */

/* Netlink. addattr_l() refuses to let n grow beyond maxlen bytes. */
int addattr_l(struct nlmsghdr *n, int maxlen, int type, const void *data,
	      int alen);
struct rtattr *addattr_nest(struct nlmsghdr *n, int maxlen, int type);
int addattr_nest_end(struct nlmsghdr *n, struct rtattr *nest);
int parse_rtattr_flags(struct rtattr *tb[], int max, struct rtattr *rta,
		       int len, unsigned short flags);

/* Output: text, JSON, or whichever the command line asks for. */
enum output_type {
	PRINT_FP = 1,
	PRINT_JSON = 2,
	PRINT_ANY = 4,
};

enum color_attr {
	COLOR_NONE = 6,
};

int print_color_string(enum output_type type, enum color_attr color,
		       const char *key, const char *fmt, const char *value);
int print_color_u64(enum output_type type, enum color_attr color,
		    const char *key, const char *fmt, uint64_t value);
int print_color_bool(enum output_type type, enum color_attr color,
		     const char *key, const char *fmt, bool value);
int print_color_null(enum output_type type, enum color_attr color,
		     const char *key, const char *fmt, const char *value);
void open_json_object(const char *key);
void close_json_object(void);
void open_json_array(enum output_type type, const char *key);
void close_json_array(enum output_type type, const char *end);
void print_nl(void);

#endif /* TC_API_H */
