/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be set, and how a value is written: shared by the two directions,
 * command line to netlink (request.c) and netlink to output (show.c).
 */
#ifndef MERCURY_TC_OPTIONS_H
#define MERCURY_TC_OPTIONS_H

#include <stdbool.h>

#include <linux/types.h>

/* The length of an attribute follows from its kind: see attr_size(). */
enum kind {
	COUNT,
	PERCENT,
	BYTES,
	RATE, /* bytes a second */
	TIME, /* ns */
	MASK,
	WORD, /* a name and one of several words: key mark */
	FLAG, /* one of several words alone: ack_first, no_ack_first */
};

struct word {
	const char *text;
	const char *json; /* NULL: the value is a boolean */
};

struct option {
	const char *name;
	const char *json; /* NULL: the name */
	const char *help;
	const struct word *words; /* by value, ends with an empty one */
	enum kind kind;
	bool has_none;	/* "none" stands for the value `none` */
	__u8 bits;	/* of a mask, at most */
	__u16 attr;
	__u64 min, max; /* of what may be typed, besides "none" */
	__u64 none;
	__u64 unset; /* what a new qdisc or class has */
};

/* Both end with an option without a name. */
extern const struct option qdisc_options[], class_options[];

/* The time of `deadline`, be it of a run of bands or of one. */
extern const struct option *const deadline_option;

#define for_each_option(o, options) for (o = options; o->name; o++)

int attr_size(const struct option *o);

/* Values as text, always exact, always something that can be typed. */
#define TEXT_SIZE 128

struct unit {
	__u64 size;
	const char *name;
};

extern const struct unit byte_units[];

void format_exactly(char *text, __u64 value, const struct unit *units);
void format_value(char *text, const struct option *o, __u64 value);
void format_range(char *text, const struct option *o);
void format_choice(char *text, const struct word *words);
const struct word *word_of(const struct option *o, __u64 value);

/* Text as values: 0, or -1 if it is not one that the option takes. */
int parse_value(const struct option *o, const char *arg, __u64 *value);
int parse_word(const char *arg, const struct word *words, __u64 *value);

/* Returns what follows the digits, or NULL if there are none. */
const char *skip_digits(const char *arg, __u64 *value);

#endif /* MERCURY_TC_OPTIONS_H */
