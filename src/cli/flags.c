/* SPDX-License-Identifier: Apache-2.0 */
/* Flags from a table. Nothing is guessed: no abbreviations, no optional values but those of
 * switches. */
#include "cli/flags.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

static const struct flag help_flag = {FLAG_HELP, 'h', "help", FLAG_SWITCH, NULL, "show this help"};

void flags_init(struct flag_parser *p, const struct flag *table, int argc, char **argv)
{
	*p = (struct flag_parser){.table = table, .argc = argc, .argv = argv, .next = 1};
}

static const struct flag *find_letter(const struct flag *table, char letter)
{
	for (const struct flag *f = table; f && f->id; f++)
		if (f->letter && f->letter == letter)
			return f;
	return letter == help_flag.letter ? &help_flag : NULL;
}

static const struct flag *find_name(const struct flag *table, const char *name, size_t n)
{
	for (const struct flag *f = table; f && f->id; f++)
		if (f->name && strlen(f->name) == n && memcmp(f->name, name, n) == 0)
			return f;
	return strlen(help_flag.name) == n && memcmp(help_flag.name, name, n) == 0 ? &help_flag
										   : NULL;
}

static int switch_value(const char *name, const char *text, bool *ret, struct err *e)
{
	if (str_eq(text, "true") || str_eq(text, "false")) {
		*ret = str_eq(text, "true");
		return 0;
	}
	return err_set(e, EINVAL, "--%s takes true or false, not '%s'", name, text);
}

/* The argument that follows as a flag's value. */
static int take_value(struct flag_parser *p, const char *spelled, const char **ret, struct err *e)
{
	if (p->next >= p->argc)
		return err_set(e, EINVAL, "%s needs a value", spelled);
	*ret = p->argv[p->next++];
	return 0;
}

static int next_letter(struct flag_parser *p, struct flag_found *ret, struct err *e)
{
	char spelled[3] = {'-', *p->tail, 0};
	const struct flag *f = find_letter(p->table, *p->tail);
	if (!f)
		return err_set(e, EINVAL, "unknown flag %s", spelled);
	p->tail++;
	*ret = (struct flag_found){.id = f->id, .on = true};
	if (f->kind == FLAG_SWITCH) {
		if (!*p->tail)
			p->tail = NULL;
		return 1;
	}
	const char *joined = p->tail;
	p->tail = NULL;
	if (*joined) {
		ret->value = *joined == '=' ? joined + 1 : joined;
		return 1;
	}
	int r = take_value(p, spelled, &ret->value, e);
	return r < 0 ? r : 1;
}

static int next_long(struct flag_parser *p, const char *arg, struct flag_found *ret, struct err *e)
{
	size_t n = strcspn(arg + 2, "=");
	const char *value = arg[2 + n] == '=' ? arg + 2 + n + 1 : NULL;
	const struct flag *f = find_name(p->table, arg + 2, n);
	if (!f)
		return err_set(e, EINVAL, "unknown flag %.*s", (int)(n + 2 > 80 ? 80 : n + 2), arg);
	*ret = (struct flag_found){.id = f->id, .on = true, .value = value};
	int r = 0;
	if (f->kind == FLAG_SWITCH && value)
		r = switch_value(f->name, value, &ret->on, e);
	else if (f->kind == FLAG_VALUE && !value)
		r = take_value(p, arg, &ret->value, e);
	return r < 0 ? r : 1;
}

int flags_next(struct flag_parser *p, struct flag_found *ret, struct err *e)
{
	if (p->tail)
		return next_letter(p, ret, e);
	if (p->next >= p->argc)
		return 0;
	const char *arg = p->argv[p->next++];
	if (p->only_words || arg[0] != '-' || !arg[1]) {
		*ret = (struct flag_found){.value = arg};
		return 1;
	}
	if (str_eq(arg, "--")) {
		p->only_words = true;
		return flags_next(p, ret, e);
	}
	if (arg[1] == '-')
		return next_long(p, arg, ret, e);
	p->tail = arg + 1;
	return next_letter(p, ret, e);
}

int flags_rest(const struct flag_parser *p, char ***ret_argv)
{
	*ret_argv = p->argv + p->next;
	return p->argc - p->next;
}

static void print_one(const struct flag *f, FILE *out)
{
	char left[48];
	char letter[3] = {f->letter ? '-' : ' ', f->letter ? f->letter : ' ', 0};
	snprintf(left, sizeof(left), "%s%s%s%s%s%s", letter, f->letter && f->name ? ", " : "  ",
		 f->name ? "--" : "", f->name ? f->name : "", f->value ? " " : "",
		 f->value ? f->value : "");
	fprintf(out, "  %-30s %s\n", left, f->help);
}

void flags_print(const struct flag *table, FILE *out)
{
	for (const struct flag *f = table; f && f->id; f++)
		print_one(f, out);
	print_one(&help_flag, out);
}
