// SPDX-License-Identifier: GPL-2.0
/*
 * show.c - from a netlink dump to text or JSON
 *
 * Dumps are read leniently: an attribute that is missing, unknown, or not of a
 * length that makes sense comes from another version of the module, and is
 * passed over. In JSON, times are whole ns in names that end in _ns, sizes are
 * bytes, a rate is bytes a second, masks and classids are strings as in text,
 * and what text calls "none" is null.
 */
#include <string.h>

#include "mercury.h"
#include "options.h"
#include "q_mercury.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* ---- Reading ---- */

static void parse_nest(struct rtattr *tb[], int max, struct rtattr *nest)
{
	parse_rtattr_flags(tb, max, RTA_DATA(nest), (int)RTA_PAYLOAD(nest),
			   NLA_F_NESTED);
}

/* RTA_NEXT, which mixes signs. */
static struct rtattr *next_attr(struct rtattr *attr, int *left)
{
	int len = (int)RTA_ALIGN(attr->rta_len);

	*left -= len;
	return (struct rtattr *)((char *)attr + len);
}

/* An unsigned number of any width, so that one may be widened later. */
static bool get_number(const struct rtattr *attr, __u64 *value)
{
	__u32 value32;
	__u8 value8;

	if (!attr)
		return false;
	switch (RTA_PAYLOAD(attr)) {
	case sizeof(value8):
		memcpy(&value8, RTA_DATA(attr), sizeof(value8));
		*value = value8;
		return true;
	case sizeof(value32):
		memcpy(&value32, RTA_DATA(attr), sizeof(value32));
		*value = value32;
		return true;
	case sizeof(*value):
		memcpy(value, RTA_DATA(attr), sizeof(*value));
		return true;
	default:
		return false;
	}
}

/* ---- Writing: each call serves text, JSON or both ---- */

static void print_text(const char *text)
{
	print_color_string(PRINT_FP, COLOR_NONE, NULL, "%s", text);
}

static void print_word(const char *text)
{
	print_color_string(PRINT_FP, COLOR_NONE, NULL, "%s ", text);
}

static void print_string(const char *json, const char *text)
{
	print_color_string(PRINT_ANY, COLOR_NONE, json, "%s", text);
}

static void print_number(const char *json, const char *text, __u64 value)
{
	print_word(text);
	print_color_u64(PRINT_JSON, COLOR_NONE, json, NULL, value);
}

static void print_null(const char *json, const char *text)
{
	print_word(text);
	print_color_null(PRINT_JSON, COLOR_NONE, json, NULL, NULL);
}

static void print_bool(const char *json, const char *text, bool value)
{
	print_word(text);
	print_color_bool(PRINT_JSON, COLOR_NONE, json, NULL, value);
}

/* ---- Settings ---- */

static void print_choice(const struct option *o, const char *json, __u64 value)
{
	const struct word *word = word_of(o, value);

	if (!word->json) {
		print_bool(json, word->text, value);
		return;
	}
	print_word(word->text);
	print_color_string(PRINT_JSON, COLOR_NONE, json, NULL, word->json);
}

static void print_value(const struct option *o, __u64 value)
{
	const char *json = o->json ? o->json : o->name;
	char text[TEXT_SIZE];

	format_value(text, o, value);
	if (o->words) {
		print_choice(o, json, value);
	} else if (o->has_none && value == o->none) {
		print_null(json, text);
	} else if (o->kind == MASK) {
		print_string(json, text);
		print_text(" ");
	} else {
		print_number(json, text, value);
	}
}

static void print_options(const struct option *options, struct rtattr *tb[])
{
	const struct option *o;
	__u64 value;

	for_each_option(o, options) {
		if (!get_number(tb[o->attr], &value))
			continue;
		if (o->kind != FLAG)
			print_word(o->name);
		print_value(o, value);
	}
}

static void print_deadline(const struct mercury_deadline *d)
{
	open_json_object(NULL);
	print_word("deadline");
	if (d->job == MERCURY_EVERY_JOB)
		print_color_null(PRINT_JSON, COLOR_NONE, "job", NULL, NULL);
	else
		print_color_u64(PRINT_ANY, COLOR_NONE, "job", "%llu:", d->job);
	print_color_u64(PRINT_ANY, COLOR_NONE, "first", "%llu", d->first);
	print_color_u64(PRINT_JSON, COLOR_NONE, "last", NULL, d->last);
	if (d->last != d->first)
		print_color_u64(PRINT_FP, COLOR_NONE, NULL, "-%llu", d->last);
	print_text(" ");
	print_value(deadline_option, d->time);
	close_json_object();
}

/* JSON has the array even if it is empty. Returns how many it has. */
static unsigned int print_deadlines(struct rtattr *nest)
{
	int left = nest ? (int)RTA_PAYLOAD(nest) : 0;
	struct rtattr *attr = nest ? RTA_DATA(nest) : NULL;
	struct mercury_deadline d;
	unsigned int n = 0;

	open_json_array(PRINT_JSON, "deadlines");
	for (; RTA_OK(attr, left); attr = next_attr(attr, &left)) {
		if ((attr->rta_type & NLA_TYPE_MASK) != TCA_MERCURY_DEADLINE ||
		    RTA_PAYLOAD(attr) < sizeof(d))
			continue;
		memcpy(&d, RTA_DATA(attr), sizeof(d));
		print_deadline(&d);
		n++;
	}
	close_json_array(PRINT_JSON, NULL);
	return n;
}

/* ---- tc -d qdisc show: what follows from the settings ---- */

static __u64 number_or(const struct rtattr *attr, __u64 value)
{
	get_number(attr, &value);
	return value;
}

static __u32 number32_or(const struct rtattr *attr, __u32 value)
{
	return (__u32)number_or(attr, value);
}

static bool splits_gso(struct rtattr *tb[])
{
	__u64 rate = number_or(tb[TCA_MERCURY_RATE], 0);

	switch (number_or(tb[TCA_MERCURY_SPLIT_GSO], MERCURY_SPLIT_AUTO)) {
	case MERCURY_SPLIT_ON:
		return true;
	case MERCURY_SPLIT_AUTO:
		return rate && rate < MERCURY_SPLIT_RATE;
	default:
		return false;
	}
}

/* As in "1:5", but tc does not say which qdisc this is. */
static void print_minor(const char *json, const char *before, __u32 minor)
{
	char text[TEXT_SIZE];

	snprintf(text, sizeof(text), ":%x", minor);
	print_text(before);
	print_string(json, text);
}

static void print_classes(__u32 jobs, __u32 bands)
{
	char step[TEXT_SIZE];

	snprintf(step, sizeof(step), "%x",
		 MERCURY_MINOR_BAND(1, 0) - MERCURY_MINOR_BAND(0, 0));
	open_json_object("classes");
	print_minor("first_band", "  classes: bands of job J ",
		    MERCURY_MINOR_BAND(0, 0));
	print_minor("last_band", " to ", MERCURY_MINOR_BAND(0, bands - 1));
	print_text(" plus J * ");
	print_string("job_step", step);
	print_minor("first_job", ", jobs ", MERCURY_MINOR_JOB(0));
	print_minor("last_job", " to ", MERCURY_MINOR_JOB(jobs - 1));
	print_minor("default", ", unmarked ", MERCURY_MINOR_DEFAULT);
	close_json_object();
}

static void print_details(struct rtattr *tb[], unsigned int n_deadlines)
{
	bool split = splits_gso(tb);
	char text[TEXT_SIZE];

	print_nl();
	print_text("  GSO packets are ");
	print_bool("split_gso_active", split ? "split;" : "sent whole;", split);
	print_text("bands not named above have deadline ");
	format_value(text, deadline_option, MERCURY_DEADLINE_DEFAULT);
	print_number("default_deadline_ns", text, MERCURY_DEADLINE_DEFAULT);
	if (n_deadlines >= MERCURY_DEADLINES_MAX) {
		print_nl();
		print_text("  there may be more deadlines than are listed: "
			   "tc class show has those of bands in use");
	}
	print_nl();
	print_classes(number32_or(tb[TCA_MERCURY_JOBS], MERCURY_JOBS_DEFAULT),
		      number32_or(tb[TCA_MERCURY_BANDS], MERCURY_BANDS_DEFAULT));
}

int mercury_print_qopt(const struct qdisc_util *qu, FILE *f,
		       struct rtattr *opt)
{
	struct rtattr *tb[TCA_MERCURY_MAX + 1];
	unsigned int n;

	(void)qu;
	(void)f;
	if (!opt)
		return 0;
	parse_nest(tb, TCA_MERCURY_MAX, opt);
	print_options(qdisc_options, tb);
	n = print_deadlines(tb[TCA_MERCURY_DEADLINES]);
	if (show_details)
		print_details(tb, n);
	return 0;
}

static bool print_index(struct rtattr *attr, const char *name)
{
	__u64 value;

	if (!get_number(attr, &value))
		return false;
	print_word(name);
	print_color_u64(PRINT_ANY, COLOR_NONE, name, "%llu ", value);
	return true;
}

/* tc does not say which class this is; its attributes do. */
int mercury_print_copt(const struct qdisc_util *qu, FILE *f,
		       struct rtattr *opt)
{
	struct rtattr *tb[TCA_MERCURY_CLASS_MAX + 1];
	bool job, band;

	(void)qu;
	(void)f;
	if (!opt)
		return 0;
	parse_nest(tb, TCA_MERCURY_CLASS_MAX, opt);
	job = print_index(tb[TCA_MERCURY_CLASS_JOB], "job");
	band = print_index(tb[TCA_MERCURY_CLASS_BAND], "band");
	if (!job && !band && !tb[TCA_MERCURY_CLASS_WEIGHT] &&
	    !tb[TCA_MERCURY_CLASS_DEADLINE])
		print_bool("default", "default", true);
	print_options(class_options, tb);
	return 0;
}

/* ---- Statistics ---- */

/* A line of text begins with its title, once there is something to say. */
enum line { LINE_NONE, LINE_NOW, LINE_DROPPED, LINE_DEADLINES, LINE_SOJOURN };

static const char *const titles[] = {
	[LINE_NOW] = "  ",
	[LINE_DROPPED] = "  dropped ",
	[LINE_DEADLINES] = "  deadlines ",
	[LINE_SOJOURN] = "  sojourn ",
};

static void begin_line(enum line *current, enum line line)
{
	if (*current == line)
		return;
	if (*current != LINE_NONE)
		print_nl();
	print_text(titles[line]);
	*current = line;
}

struct counter {
	enum line line;
	enum kind kind;
	__u16 attr;
	__u16 per;	  /* 0, or what it is divided by */
	const char *text; /* NULL: only in JSON */
	const char *json;
};

static const struct counter counters[] = {
	{ LINE_NOW, COUNT, TCA_MERCURY_STATS_ACTIVE_JOBS, 0,
	  "active_jobs", "active_jobs" },
	{ LINE_NOW, BYTES, TCA_MERCURY_STATS_MEMORY, 0,
	  "memory", "memory_used" },
	{ LINE_NOW, BYTES, TCA_MERCURY_STATS_MEMORY_PEAK, 0,
	  "peak", "memory_peak" },
	{ LINE_NOW, COUNT, TCA_MERCURY_STATS_SPLIT, 0,
	  "split", "gso_split" },
	{ LINE_NOW, COUNT, TCA_MERCURY_STATS_ACKS, 0,
	  "acks_first", "acks_first" },
	{ LINE_NOW, COUNT, TCA_MERCURY_STATS_CE_MARKS, 0,
	  "ce_marks", "ce_marks" },
	{ LINE_DROPPED, COUNT, TCA_MERCURY_STATS_DROP_LIMIT, 0,
	  "limit", "drop_limit" },
	{ LINE_DROPPED, COUNT, TCA_MERCURY_STATS_DROP_MEMORY, 0,
	  "memory", "drop_memory" },
	{ LINE_DROPPED, COUNT, TCA_MERCURY_STATS_DROP_FILTER, 0,
	  "filter", "drop_filter" },
	{ LINE_DROPPED, COUNT, TCA_MERCURY_STATS_DROP_GSO, 0,
	  "gso", "drop_gso" },
	{ LINE_DEADLINES, COUNT, TCA_MERCURY_STATS_MET, 0,
	  "met", "deadline_met" },
	{ LINE_DEADLINES, COUNT, TCA_MERCURY_STATS_MISSED, 0,
	  "missed", "deadline_missed" },
	{ LINE_DEADLINES, TIME, TCA_MERCURY_STATS_LATENESS,
	  TCA_MERCURY_STATS_MISSED, "late_mean", "lateness_mean_ns" },
	{ LINE_DEADLINES, TIME, TCA_MERCURY_STATS_LATENESS, 0,
	  NULL, "lateness_total_ns" },
	{ LINE_DEADLINES, TIME, TCA_MERCURY_STATS_LATENESS_MAX, 0,
	  "late_max", "lateness_max_ns" },
	{ LINE_DEADLINES, COUNT, TCA_MERCURY_STATS_RESCUED, 0,
	  "rescued", "rescued_packets" },
	{ LINE_DEADLINES, BYTES, TCA_MERCURY_STATS_RESCUED_BYTES, 0,
	  "rescued_bytes", "rescued_bytes" },
};

_Static_assert(TEXT_SIZE >= TC_SPRINT_SIZE, "sprint_time64");

/* Measured times are for reading: in three digits. */
static void format_measured(char *text, enum kind kind, __u64 value)
{
	switch (kind) {
	case BYTES:
		format_exactly(text, value, byte_units);
		break;
	case TIME:
		sprint_time64((__s64)(value & INT64_MAX), text);
		break;
	default:
		snprintf(text, TEXT_SIZE, "%llu", (unsigned long long)value);
		break;
	}
}

static bool get_counter(const struct counter *c, struct rtattr *tb[],
			__u64 *value)
{
	__u64 per;

	if (!get_number(tb[c->attr], value))
		return false;
	if (!c->per)
		return true;
	if (!get_number(tb[c->per], &per))
		return false;
	*value = per ? *value / per : 0;
	return true;
}

/* With fifty bands to look at, lines of zeros hide the others. */
static bool line_is_shown(enum line line, struct rtattr *tb[])
{
	__u64 value;

	if (line == LINE_NOW)
		return true;
	for (unsigned int i = 0; i < ARRAY_SIZE(counters); i++)
		if (counters[i].line == line &&
		    get_counter(&counters[i], tb, &value) && value)
			return true;
	return false;
}

static void print_counter(const struct counter *c, struct rtattr *tb[],
			  enum line *current)
{
	char text[TEXT_SIZE];
	__u64 value;

	if (!get_counter(c, tb, &value))
		return;
	print_color_u64(PRINT_JSON, COLOR_NONE, c->json, NULL, value);
	if (!c->text || !line_is_shown(c->line, tb))
		return;
	begin_line(current, c->line);
	format_measured(text, c->kind, value);
	print_word(c->text);
	print_word(text);
}

/* ---- The histogram of sojourn times ---- */

/*
 * The last bucket of a dump has no upper bound, however many there are. One
 * whose bound would not fit 63 bits counts nothing, and is cut off.
 */
struct histogram {
	unsigned int n;
	__u64 packets[63 - MERCURY_SOJOURN_SHIFT];
};

static bool read_histogram(struct histogram *h, const struct rtattr *attr)
{
	if (!attr)
		return false;
	h->n = (unsigned int)(RTA_PAYLOAD(attr) / sizeof(__u64));
	if (h->n > ARRAY_SIZE(h->packets))
		h->n = ARRAY_SIZE(h->packets);
	memcpy(h->packets, RTA_DATA(attr), h->n * sizeof(__u64));
	return h->n > 0;
}

static double total_packets(const struct histogram *h)
{
	double total = 0;

	for (unsigned int i = 0; i < h->n; i++)
		total += (double)h->packets[i];
	return total;
}

/* The bucket in which this part of all packets is reached. */
static unsigned int find_quantile(const struct histogram *h, double part)
{
	double wanted = total_packets(h) * part, seen = 0;
	unsigned int i;

	for (i = 0; i + 1 < h->n; i++) {
		seen += (double)h->packets[i];
		if (seen >= wanted)
			break;
	}
	return i;
}

static __u64 upper_bound(unsigned int bucket)
{
	return 1ULL << (MERCURY_SOJOURN_SHIFT + bucket);
}

/* "<2.05us", and of the last bucket ">=8.59s" */
static void print_bound(const struct histogram *h, unsigned int bucket,
			const char *json)
{
	char text[TEXT_SIZE];

	if (bucket + 1 < h->n) {
		format_measured(text, TIME, upper_bound(bucket));
		print_text("<");
		print_number(json, text, upper_bound(bucket));
	} else {
		format_measured(text, TIME,
				bucket ? upper_bound(bucket - 1) : 0);
		print_text(">=");
		print_null(json, text);
	}
}

static void print_buckets(const struct histogram *h)
{
	open_json_array(PRINT_JSON, "sojourn");
	for (unsigned int i = 0; i < h->n; i++) {
		if (!h->packets[i])
			continue;
		open_json_object(NULL);
		print_bound(h, i, "below_ns");
		print_color_u64(PRINT_ANY, COLOR_NONE, "packets", "%llu ",
				h->packets[i]);
		close_json_object();
	}
	close_json_array(PRINT_JSON, NULL);
}

static void print_histogram(const struct histogram *h, enum line *current)
{
	if (total_packets(h) > 0) {
		begin_line(current, LINE_SOJOURN);
		print_word("p50");
		print_bound(h, find_quantile(h, 0.50), "sojourn_p50_below_ns");
		print_word("p99");
		print_bound(h, find_quantile(h, 0.99), "sojourn_p99_below_ns");
		print_text(" ");
	}
	print_buckets(h);
}

int mercury_print_xstats(const struct qdisc_util *qu, FILE *f,
			 struct rtattr *xstats)
{
	struct rtattr *tb[TCA_MERCURY_STATS_MAX + 1];
	enum line current = LINE_NONE;
	struct histogram h;

	(void)qu;
	(void)f;
	if (!xstats)
		return 0;
	parse_nest(tb, TCA_MERCURY_STATS_MAX, xstats);
	for (unsigned int i = 0; i < ARRAY_SIZE(counters); i++)
		print_counter(&counters[i], tb, &current);
	if (read_histogram(&h, tb[TCA_MERCURY_STATS_SOJOURN]))
		print_histogram(&h, &current);
	return 0;
}
