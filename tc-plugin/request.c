// SPDX-License-Identifier: GPL-2.0
/*
 * request.c - from a command line to a netlink request
 *
 * An option that is not named is not sent, so that `change` leaves it as it is.
 * Whatever is refused is refused before anything is sent, with a sentence that
 * names the word, the value and what it must be; tc then exits with 1.
 */
#include <stdarg.h>
#include <string.h>

#include "mercury.h"
#include "options.h"
#include "q_mercury.h"

__attribute__((format(printf, 1, 2))) static int refuse(const char *fmt, ...)
{
	va_list ap;

	fputs("mercury: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return -1;
}

struct args {
	int argc;
	char **argv;
};

static const char *next_arg(struct args *args)
{
	if (args->argc <= 0)
		return NULL;
	args->argc--;
	return *args->argv++;
}

/* ---- Options that are in a table ---- */

#define ATTRS_MAX 32 /* more than either table has attributes */

/* What a command line gave, by attribute. */
struct settings {
	const struct option *options; /* the table it is parsed by */
	const char *help;	      /* the command that explains them */
	bool given[ATTRS_MAX];
	__u64 value[ATTRS_MAX];
};

_Static_assert(TCA_MERCURY_MAX < ATTRS_MAX, "ATTRS_MAX");
_Static_assert(TCA_MERCURY_CLASS_MAX < ATTRS_MAX, "ATTRS_MAX");

/* A flag is called by any of its words, another option by its name. */
static const struct option *find_option(const struct option *options,
					const char *word)
{
	const struct option *o;
	__u64 value;

	for_each_option(o, options) {
		if (o->kind == FLAG ? !parse_word(word, o->words, &value) :
				      !strcmp(word, o->name))
			return o;
	}
	return NULL;
}

static int refuse_value(const struct option *o, const char *arg)
{
	char range[TEXT_SIZE];

	format_range(range, o);
	if (!arg)
		return refuse("%s: its value is missing: must be %s", o->name,
			      range);
	return refuse("%s %s: must be %s", o->name, arg, range);
}

static int refuse_twice(const struct option *o, const char *word)
{
	char choice[TEXT_SIZE];

	if (o->kind != FLAG)
		return refuse("%s: given twice", word);
	format_choice(choice, o->words);
	return refuse("%s: only one of %s may be given, and once", word,
		      choice);
}

static int parse_option(struct settings *s, const char *word, struct args *args)
{
	const struct option *o = find_option(s->options, word);
	const char *arg = word;

	if (!o)
		return refuse("What is \"%s\"? Try \"%s\".", word, s->help);
	if (s->given[o->attr])
		return refuse_twice(o, word);
	if (o->kind != FLAG)
		arg = next_arg(args);
	if (!arg || parse_value(o, arg, &s->value[o->attr]))
		return refuse_value(o, arg);
	s->given[o->attr] = true;
	return 0;
}

static int put_value(struct nlmsghdr *n, int maxlen, const struct option *o,
		     __u64 value)
{
	__u32 value32 = (__u32)value;
	__u8 value8 = (__u8)value;
	int size = attr_size(o);
	const void *data = &value;

	if (size == sizeof(value32))
		data = &value32;
	else if (size == sizeof(value8))
		data = &value8;
	return addattr_l(n, maxlen, o->attr, data, size);
}

static int put_settings(const struct settings *s, struct nlmsghdr *n,
			int maxlen)
{
	const struct option *o;

	for_each_option(o, s->options) {
		if (s->given[o->attr] &&
		    put_value(n, maxlen, o, s->value[o->attr]))
			return -1;
	}
	return 0;
}

static void explain_options(const struct option *options)
{
	static const char *const operand[] = {
		[COUNT] = " N",	      [PERCENT] = " PERCENT",
		[BYTES] = " SIZE",    [RATE] = " RATE",
		[TIME] = " TIME",     [MASK] = " MASK",
		[WORD] = " WORD",     [FLAG] = "",
	};
	char name[TEXT_SIZE], range[TEXT_SIZE], unset[TEXT_SIZE];
	const struct option *o;

	for_each_option(o, options) {
		snprintf(name, sizeof(name), "%s%s", o->name, operand[o->kind]);
		format_range(range, o);
		format_value(unset, o, o->unset);
		fprintf(stderr, "  %-22s%s\n%24s%s (at first %s)\n", name,
			o->help, "", range, unset);
	}
}

/* ---- deadline [JOB:]BAND[-BAND] TIME, any number of times ---- */

struct deadlines {
	unsigned int n;
	struct mercury_deadline d[MERCURY_DEADLINES_MAX];
};

static int refuse_bands(const char *arg)
{
	return refuse("deadline %s: must be [JOB:]BAND[-BAND] TIME, "
		      "such as 0:3-5 2ms",
		      arg);
}

/* Also for values that fit the ABI but not the `jobs` and `bands` given. */
static int check_bands(const char *arg, const struct mercury_deadline *d,
		       __u64 jobs, __u64 bands)
{
	if (d->job != MERCURY_EVERY_JOB && d->job >= jobs)
		return refuse("deadline %s: job %u: must be 0 to %llu", arg,
			      d->job, (unsigned long long)jobs - 1);
	if (d->first >= bands || d->last >= bands)
		return refuse("deadline %s: band %u: must be 0 to %llu", arg,
			      d->first >= bands ? d->first : d->last,
			      (unsigned long long)bands - 1);
	return 0;
}

/* A number that is too large for the field is too large for any check. */
static __u16 clamp16(__u64 value, __u16 max)
{
	return value < max ? (__u16)value : max;
}

static int parse_bands(const char *arg, struct mercury_deadline *d)
{
	__u64 first, last;
	const char *p = skip_digits(arg, &first);

	d->job = MERCURY_EVERY_JOB;
	if (p && *p == ':') {
		d->job = clamp16(first, MERCURY_EVERY_JOB - 1);
		p = skip_digits(p + 1, &first);
	}
	last = first;
	if (p && *p == '-')
		p = skip_digits(p + 1, &last);
	if (!p || *p)
		return refuse_bands(arg);
	d->first = clamp16(first, UINT16_MAX);
	d->last = clamp16(last, UINT16_MAX);
	if (check_bands(arg, d, MERCURY_JOBS_MAX, MERCURY_BANDS_MAX))
		return -1;
	if (d->last < d->first)
		return refuse("deadline %s: last band %u: must be %u to %d",
			      arg, d->last, d->first, MERCURY_BANDS_MAX - 1);
	return 0;
}

/* As it was typed. */
static void format_bands(char *text, const struct mercury_deadline *d)
{
	char job[16] = "", last[16] = "";

	if (d->job != MERCURY_EVERY_JOB)
		snprintf(job, sizeof(job), "%u:", d->job);
	if (d->last != d->first)
		snprintf(last, sizeof(last), "-%u", d->last);
	snprintf(text, TEXT_SIZE, "%s%u%s", job, d->first, last);
}

static int parse_deadline(struct deadlines *list, struct args *args)
{
	const char *bands = next_arg(args), *time = next_arg(args);
	struct mercury_deadline d = { .pad = 0 };
	char range[TEXT_SIZE];
	__u64 value;

	if (!bands)
		return refuse_bands("(nothing)");
	if (parse_bands(bands, &d))
		return -1;
	format_range(range, deadline_option);
	if (!time)
		return refuse("deadline %s: its time is missing: must be %s",
			      bands, range);
	if (parse_value(deadline_option, time, &value))
		return refuse("deadline %s %s: must be %s", bands, time, range);
	d.time = value;
	if (list->n == MERCURY_DEADLINES_MAX)
		return refuse("deadline %s %s: only %d fit one request; "
			      "set the others with tc class change",
			      bands, time, MERCURY_DEADLINES_MAX);
	list->d[list->n++] = d;
	return 0;
}

static int put_deadlines(const struct deadlines *list, struct nlmsghdr *n,
			 int maxlen)
{
	struct rtattr *nest;

	if (!list->n)
		return 0;
	nest = addattr_nest(n, maxlen, TCA_MERCURY_DEADLINES | NLA_F_NESTED);
	for (unsigned int i = 0; i < list->n; i++)
		if (addattr_l(n, maxlen, TCA_MERCURY_DEADLINE, &list->d[i],
			      sizeof(list->d[i])))
			return -1;
	addattr_nest_end(n, nest);
	return 0;
}

/* ---- tc qdisc add, replace, change ---- */

/* The whole message: tc's buffer less what tc itself may add for `stab`. */
#define QDISC_REQUEST_MAX (60 * 1024)

#define QDISC_HELP "tc qdisc add dev DEV root mercury help"
#define CLASS_HELP "tc class change dev DEV classid 1:1 mercury help"

static void explain_qdisc(void)
{
	char range[TEXT_SIZE], unset[TEXT_SIZE];

	fputs("Usage: tc qdisc { add | replace | change } dev DEV { root | parent CLASSID }\n"
	      "          mercury [ OPTION ]...\n"
	      "       tc class change dev DEV classid CLASSID mercury [ OPTION ]...\n"
	      "          (help: " CLASS_HELP ")\n"
	      "\n"
	      "A packet of layer L waits in band L - 1 of its job. Within a job the lowest band\n"
	      "is sent first; jobs, and the packets without a layer, share the link.\n"
	      "\n"
	      "OPTION:\n",
	      stderr);
	explain_options(qdisc_options);
	format_range(range, deadline_option);
	format_value(unset, deadline_option, deadline_option->unset);
	fprintf(stderr,
		"  deadline [JOB:]BAND[-BAND] TIME\n"
		"%24show long packets of these bands should wait at most;\n"
		"%24sany number of these, a later one overrides\n"
		"%24s%s (at first %s)\n"
		"\n"
		"More in tc-mercury(8).\n",
		"", "", "", range, unset);
}

static int check_qdisc(const struct settings *s, const struct deadlines *list)
{
	__u64 mask = s->value[TCA_MERCURY_MASK];
	__u64 job_mask = s->value[TCA_MERCURY_JOB_MASK];
	__u64 jobs = s->given[TCA_MERCURY_JOBS] ? s->value[TCA_MERCURY_JOBS] :
						  MERCURY_JOBS_MAX;
	__u64 bands = s->given[TCA_MERCURY_BANDS] ?
			      s->value[TCA_MERCURY_BANDS] :
			      MERCURY_BANDS_MAX;
	char text[TEXT_SIZE];

	if (mask & job_mask) /* one that is not given is 0 here */
		return refuse("job_mask %#llx: must not overlap mask %#llx",
			      (unsigned long long)job_mask,
			      (unsigned long long)mask);
	for (unsigned int i = 0; i < list->n; i++) {
		format_bands(text, &list->d[i]);
		if (check_bands(text, &list->d[i], jobs, bands))
			return -1;
	}
	return 0;
}

static int put_qdisc(const struct settings *s, const struct deadlines *list,
		     struct nlmsghdr *n)
{
	struct rtattr *nest = addattr_nest(n, QDISC_REQUEST_MAX,
					   TCA_OPTIONS | NLA_F_NESTED);

	if (put_settings(s, n, QDISC_REQUEST_MAX) ||
	    put_deadlines(list, n, QDISC_REQUEST_MAX))
		return refuse("the request is too long");
	addattr_nest_end(n, nest);
	return 0;
}

int mercury_parse_qopt(const struct qdisc_util *qu, int argc, char **argv,
		       struct nlmsghdr *n, const char *dev)
{
	struct settings s = { .options = qdisc_options, .help = QDISC_HELP };
	struct args args = { argc, argv };
	struct deadlines list;
	const char *word;
	int err;

	(void)qu;
	(void)dev;
	list.n = 0;
	while ((word = next_arg(&args))) {
		if (!strcmp(word, "help")) {
			explain_qdisc();
			return -1;
		}
		if (!strcmp(word, "deadline"))
			err = parse_deadline(&list, &args);
		else
			err = parse_option(&s, word, &args);
		if (err)
			return err;
	}
	if (check_qdisc(&s, &list))
		return -1;
	return put_qdisc(&s, &list, n);
}

/* ---- tc class change ---- */

#define CLASS_REQUEST_MAX 4096 /* tc's buffer */

#define LAST_BAND MERCURY_MINOR_BAND(MERCURY_JOBS_MAX - 1, MERCURY_BANDS_MAX - 1)
#define FIRST_JOB MERCURY_MINOR_JOB(0)
#define LAST_JOB MERCURY_MINOR_JOB(MERCURY_JOBS_MAX - 1)

static void explain_class(void)
{
	fputs("Usage: tc class change dev DEV classid CLASSID mercury [ OPTION ]...\n"
	      "\n"
	      "CLASSID: the handle of the qdisc, a colon, and in hexadecimal\n"
	      "  J * 400 + L           layer L of job J, that is band L - 1 (L from 1, J from 0)\n"
	      "  fc00 + J              job J\n"
	      "  ffff                  the default class, of packets without a layer: it has no\n"
	      "                        options, but its qdisc can be replaced\n"
	      "\n"
	      "OPTION:\n",
	      stderr);
	explain_options(class_options);
	fputs("\nMore in tc-mercury(8).\n", stderr);
}

/* The kernel refuses these as well; here the reason can name the class. */
static int check_class(const struct settings *s, __u32 classid)
{
	__u32 major = classid >> 16, minor = classid & 0xffff;
	bool band = minor && minor <= LAST_BAND;
	bool job = minor >= FIRST_JOB && minor <= LAST_JOB;

	if (minor == MERCURY_MINOR_DEFAULT)
		return refuse("classid %x:%x: the default class has no "
			      "options; its qdisc can be replaced",
			      major, minor);
	if (!band && !job)
		return refuse("classid %x:%x: must be %x:1 to %x:%x (bands) or "
			      "%x:%x to %x:%x (jobs)",
			      major, minor, major, major, LAST_BAND, major,
			      FIRST_JOB, major, LAST_JOB);
	if (band && s->given[TCA_MERCURY_CLASS_WEIGHT])
		return refuse("weight: class %x:%x is a band; only jobs, "
			      "%x:%x to %x:%x, have a weight",
			      major, minor, major, FIRST_JOB, major, LAST_JOB);
	if (job && s->given[TCA_MERCURY_CLASS_DEADLINE])
		return refuse("deadline: class %x:%x is a job; only bands, "
			      "%x:1 to %x:%x, have a deadline",
			      major, minor, major, major, LAST_BAND);
	return 0;
}

int mercury_parse_copt(const struct qdisc_util *qu, int argc, char **argv,
		       struct nlmsghdr *n, const char *dev)
{
	struct settings s = { .options = class_options, .help = CLASS_HELP };
	const struct tcmsg *t = NLMSG_DATA(n);
	struct args args = { argc, argv };
	struct rtattr *nest;
	const char *word;

	(void)qu;
	(void)dev;
	while ((word = next_arg(&args))) {
		if (!strcmp(word, "help")) {
			explain_class();
			return -1;
		}
		if (parse_option(&s, word, &args))
			return -1;
	}
	if (check_class(&s, t->tcm_handle))
		return -1;
	nest = addattr_nest(n, CLASS_REQUEST_MAX, TCA_OPTIONS | NLA_F_NESTED);
	if (put_settings(&s, n, CLASS_REQUEST_MAX))
		return refuse("the request is too long");
	addattr_nest_end(n, nest);
	return 0;
}
