// SPDX-License-Identifier: GPL-2.0
/*
 * options.c - one table of the options of the qdisc, one of those of a class
 *
 * Name, attribute, range and default of an option are written here and nowhere
 * else in the plugin: parsing, refusals, help and output follow from the tables,
 * so what is printed can be typed. Only `deadline` of the qdisc, which may be
 * given any number of times, has code of its own.
 */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mercury.h"
#include "options.h"
#include "tc_api.h"

static const struct word key_words[] = {
	[MERCURY_KEY_MARK] = { "mark", "mark" },
	[MERCURY_KEY_PRIORITY] = { "priority", "priority" },
	[MERCURY_KEY_DSCP] = { "dscp", "dscp" },
	{ NULL, NULL },
};

static const struct word split_words[] = {
	[MERCURY_SPLIT_OFF] = { "no_split_gso", "off" },
	[MERCURY_SPLIT_ON] = { "split_gso", "on" },
	[MERCURY_SPLIT_AUTO] = { "auto_split_gso", "auto" },
	{ NULL, NULL },
};

static const struct word ack_words[] = {
	{ "no_ack_first", NULL },
	{ "ack_first", NULL },
	{ NULL, NULL },
};

const struct option qdisc_options[] = {
	{ .name = "jobs", .kind = COUNT, .attr = TCA_MERCURY_JOBS,
	  .min = MERCURY_JOBS_MIN, .max = MERCURY_JOBS_MAX,
	  .unset = MERCURY_JOBS_DEFAULT,
	  .help = "jobs that share the link" },
	{ .name = "bands", .kind = COUNT, .attr = TCA_MERCURY_BANDS,
	  .min = MERCURY_BANDS_MIN, .max = MERCURY_BANDS_MAX,
	  .unset = MERCURY_BANDS_DEFAULT,
	  .help = "bands of each job" },
	{ .name = "limit", .kind = COUNT, .attr = TCA_MERCURY_LIMIT,
	  .min = MERCURY_LIMIT_MIN, .max = MERCURY_LIMIT_MAX,
	  .unset = MERCURY_LIMIT_DEFAULT,
	  .help = "packets in all bands" },
	{ .name = "memory_limit", .kind = BYTES,
	  .attr = TCA_MERCURY_MEMORY_LIMIT,
	  .min = MERCURY_MEMORY_MIN, .max = MERCURY_MEMORY_MAX,
	  .unset = MERCURY_MEMORY_DEFAULT,
	  .help = "memory that the packets in all bands take" },
	{ .name = "key", .kind = WORD, .attr = TCA_MERCURY_KEY,
	  .words = key_words, .max = __MERCURY_KEY_MAX - 1,
	  .unset = MERCURY_KEY_MARK,
	  .help = "where a packet carries its layer and its job" },
	{ .name = "mask", .kind = MASK, .attr = TCA_MERCURY_MASK,
	  .min = 1, .max = UINT32_MAX, .bits = MERCURY_MASK_BITS,
	  .unset = MERCURY_MASK_DEFAULT,
	  .help = "bits of the key that hold the layer" },
	{ .name = "job_mask", .kind = MASK, .attr = TCA_MERCURY_JOB_MASK,
	  .max = UINT32_MAX, .bits = MERCURY_JOB_MASK_BITS,
	  .unset = MERCURY_JOB_MASK_DEFAULT,
	  .help = "bits of the key that hold the job; 0: there is one job" },
	{ .name = "default_share", .kind = PERCENT,
	  .attr = TCA_MERCURY_DEFAULT_SHARE,
	  .min = MERCURY_SHARE_MIN, .max = MERCURY_SHARE_MAX,
	  .unset = MERCURY_SHARE_DEFAULT,
	  .help = "share of the link for unmarked packets" },
	{ .name = "rescue", .kind = PERCENT, .attr = TCA_MERCURY_RESCUE,
	  .min = MERCURY_RESCUE_MIN, .max = MERCURY_RESCUE_MAX,
	  .unset = MERCURY_RESCUE_DEFAULT,
	  .help = "share of a job that overdue packets may take out of turn" },
	{ .name = "rate", .kind = RATE, .attr = TCA_MERCURY_RATE,
	  .min = MERCURY_RATE_MIN, .max = MERCURY_RATE_MAX,
	  .has_none = true,
	  .help = "shape to this rate" },
	{ .name = "split_gso", .kind = FLAG, .attr = TCA_MERCURY_SPLIT_GSO,
	  .words = split_words, .max = __MERCURY_SPLIT_MAX - 1,
	  .unset = MERCURY_SPLIT_AUTO,
	  .help = "cut GSO packets up; auto: if rate is set and below 1Gbit" },
	{ .name = "ack_first", .kind = FLAG, .attr = TCA_MERCURY_ACK_FIRST,
	  .words = ack_words, .max = 1,
	  .unset = 1,
	  .help = "put pure TCP ACKs into band 0 of their job" },
	{ .name = "ce_threshold", .kind = TIME,
	  .attr = TCA_MERCURY_CE_THRESHOLD,
	  .min = MERCURY_TIME_MIN, .max = MERCURY_TIME_MAX,
	  .has_none = true, .none = MERCURY_TIME_NONE,
	  .unset = MERCURY_TIME_NONE, .json = "ce_threshold_ns",
	  .help = "mark ECN packets that waited longer" },
	{ .name = NULL },
};

const struct option class_options[] = {
	{ .name = "weight", .kind = COUNT, .attr = TCA_MERCURY_CLASS_WEIGHT,
	  .min = MERCURY_WEIGHT_MIN, .max = MERCURY_WEIGHT_MAX,
	  .unset = MERCURY_WEIGHT_DEFAULT,
	  .help = "of a job: its part of what the jobs get" },
	{ .name = "deadline", .kind = TIME, .attr = TCA_MERCURY_CLASS_DEADLINE,
	  .min = MERCURY_TIME_MIN, .max = MERCURY_TIME_MAX,
	  .has_none = true, .none = MERCURY_TIME_NONE,
	  .unset = MERCURY_DEADLINE_DEFAULT, .json = "deadline_ns",
	  .help = "of a band: how long its packets should wait at most" },
	{ .name = "limit", .kind = COUNT, .attr = TCA_MERCURY_CLASS_LIMIT,
	  .min = MERCURY_LIMIT_MIN, .max = MERCURY_LIMIT_MAX,
	  .has_none = true,
	  .help = "of a job or a band: packets in it" },
	{ .name = NULL },
};

const struct option *const deadline_option = &class_options[1];

int attr_size(const struct option *o)
{
	switch (o->kind) {
	case RATE:
	case TIME:
		return sizeof(__u64);
	case WORD:
	case FLAG:
		return sizeof(__u8);
	default:
		return sizeof(__u32);
	}
}

/* ---- Values as text ---- */

const struct unit byte_units[] = {
	{ 1 << 30, "Gb" },
	{ 1 << 20, "Mb" },
	{ 1 << 10, "Kb" },
	{ 1, "b" },
};

static const struct unit rate_units[] = {
	{ 1000000000000, "Tbit" },
	{ 1000000000, "Gbit" },
	{ 1000000, "Mbit" },
	{ 1000, "Kbit" },
	{ 1, "bit" },
};

static const struct unit time_units[] = {
	{ 1000000000, "s" },
	{ 1000000, "ms" },
	{ 1000, "us" },
	{ 1, "ns" },
};

/*
 * In the largest unit that divides the value: tc's own functions round to three
 * digits, and then what is printed would not be what was set.
 */
void format_exactly(char *text, __u64 value, const struct unit *units)
{
	while (units->size > 1 && (!value || value % units->size))
		units++;
	snprintf(text, TEXT_SIZE, "%llu%s",
		 (unsigned long long)(value / units->size), units->name);
}

static unsigned int count_words(const struct word *words)
{
	unsigned int n = 0;

	while (words[n].text)
		n++;
	return n;
}

/* A newer module may have words that this plugin does not know. */
const struct word *word_of(const struct option *o, __u64 value)
{
	static const struct word unknown = { "unknown", "unknown" };

	return value < count_words(o->words) ? &o->words[value] : &unknown;
}

void format_value(char *text, const struct option *o, __u64 value)
{
	if (o->has_none && value == o->none) {
		snprintf(text, TEXT_SIZE, "none");
		return;
	}
	switch (o->kind) {
	case COUNT:
		snprintf(text, TEXT_SIZE, "%llu", (unsigned long long)value);
		break;
	case PERCENT:
		snprintf(text, TEXT_SIZE, "%llu%%", (unsigned long long)value);
		break;
	case BYTES:
		format_exactly(text, value, byte_units);
		break;
	case RATE:
		format_exactly(text, value * 8, rate_units);
		break;
	case TIME:
		format_exactly(text, value, time_units);
		break;
	case MASK:
		snprintf(text, TEXT_SIZE, "%#llx", (unsigned long long)value);
		break;
	case WORD:
	case FLAG:
		snprintf(text, TEXT_SIZE, "%s", word_of(o, value)->text);
		break;
	}
}

/* "mark, priority or dscp" */
void format_choice(char *text, const struct word *words)
{
	unsigned int n = count_words(words);
	size_t used = 0;

	for (unsigned int i = 0; i < n; i++) {
		const char *joint = i == 0 ? "" : i + 1 < n ? ", " : " or ";

		used += (size_t)snprintf(text + used, TEXT_SIZE - used, "%s%s",
					 joint, words[i].text);
	}
}

/* What may be typed: completes "must be", and the help. */
void format_range(char *text, const struct option *o)
{
	char low[TEXT_SIZE], high[TEXT_SIZE];
	const char *tail = o->has_none ? ", or none" : "";

	switch (o->kind) {
	case WORD:
	case FLAG:
		format_choice(text, o->words);
		return;
	case MASK:
		snprintf(text, TEXT_SIZE,
			 "one run of 1 to %u bits, such as 0xff00%s",
			 o->bits, o->min ? "" : ", or 0");
		return;
	case TIME:
		tail = " with its unit (ns, us, ms or s), or none";
		break;
	default:
		break;
	}
	format_value(low, o, o->min);
	format_value(high, o, o->max);
	snprintf(text, TEXT_SIZE, "%.24s to %.24s%s", low, high, tail);
}

/* ---- Text as values ---- */

/*
 * The C library takes leading spaces, signs, infinity and "0x" where nobody
 * means them, so a number must begin with a digit here. One that does not fit
 * comes out as the largest, and fails the range check.
 */
const char *skip_digits(const char *arg, __u64 *value)
{
	char *end;

	if (!isdigit((unsigned char)*arg))
		return NULL;
	*value = strtoull(arg, &end, 10);
	return end;
}

static int parse_integer(const char *arg, const char *suffix, __u64 *value)
{
	const char *end = skip_digits(arg, value);

	return end && (!*end || !strcmp(end, suffix)) ? 0 : -1;
}

static int parse_mask(const char *arg, unsigned int bits, __u64 *value)
{
	__u64 low;
	char *end;

	if (!strncasecmp(arg, "0x", 2) && isxdigit((unsigned char)arg[2])) {
		*value = strtoull(arg, &end, 16);
		if (*end)
			return -1;
	} else if (parse_integer(arg, "", value)) {
		return -1;
	}
	low = *value & -*value; /* added to one run of bits it clears them all */
	if (*value & (*value + low))
		return -1;
	return *value && *value >= low << bits ? -1 : 0;
}

/* How much one of a unit is, by tc's names for it. */
static int parse_unit(const char *unit, enum kind kind, double *scale)
{
	unsigned int bytes;
	char one[16];
	__u64 rate;
	__s64 time;

	/* eight, so that a bit is a whole number of bytes */
	if (snprintf(one, sizeof(one), "%c%s", kind == RATE ? '8' : '1',
		     unit) >= (int)sizeof(one))
		return -1;
	switch (kind) {
	case BYTES:
		if (get_size(&bytes, one))
			return -1;
		*scale = bytes;
		return 0;
	case RATE:
		if (get_rate64(&rate, one))
			return -1;
		*scale = (double)rate / 8;
		return 0;
	case TIME:
		/* tc reads a bare number as us in one place, as ns in another */
		if (!*unit || get_time64(&time, one))
			return -1;
		*scale = (double)time;
		return 0;
	default:
		return -1;
	}
}

/* A decimal number and a unit, rounded: tc would cut 2.01ms to 2009999ns. */
static int parse_scaled(const char *arg, enum kind kind, __u64 *value)
{
	const char *unit = arg + strspn(arg, "0123456789");
	double scale, scaled;

	if (unit == arg)
		return -1;
	if (*unit == '.')
		unit += 1 + strspn(unit + 1, "0123456789");
	if (strpbrk(unit, "0123456789.+-") || parse_unit(unit, kind, &scale))
		return -1;
	scaled = strtod(arg, NULL) * scale + 0.5;
	*value = scaled < 1e19 ? (__u64)scaled : UINT64_MAX;
	return 0;
}

int parse_word(const char *arg, const struct word *words, __u64 *value)
{
	for (*value = 0; words[*value].text; ++*value)
		if (!strcmp(arg, words[*value].text))
			return 0;
	return -1;
}

static int parse_any(const struct option *o, const char *arg, __u64 *value)
{
	switch (o->kind) {
	case COUNT:
		return parse_integer(arg, "", value);
	case PERCENT:
		return parse_integer(arg, "%", value);
	case BYTES:
	case RATE:
	case TIME:
		return parse_scaled(arg, o->kind, value);
	case MASK:
		return parse_mask(arg, o->bits, value);
	case WORD:
	case FLAG:
		return parse_word(arg, o->words, value);
	}
	return -1;
}

int parse_value(const struct option *o, const char *arg, __u64 *value)
{
	if (o->has_none && !strcmp(arg, "none")) {
		*value = o->none;
		return 0;
	}
	if (parse_any(o, arg, value))
		return -1;
	return *value >= o->min && *value <= o->max ? 0 : -1;
}
