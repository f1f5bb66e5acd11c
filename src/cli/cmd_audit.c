/* SPDX-License-Identifier: Apache-2.0 */
/* space audit: the record of what happened, for people or as it is; and whether it is whole. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/cli.h"
#include "cli/text.h"

#define LINE_MAX_BYTES (1u << 20) /* of one record */

enum { AUDIT_JSON = 1 };

static const struct flag audit_flags[] = {
	{AUDIT_JSON, 0, "json", FLAG_SWITCH, NULL, "the records as they are"},
	{0},
};

static int audit_flag(void *user, const struct flag_found *f, struct err *e)
{
	(void)e;
	*(bool *)user = f->on;
	return 0;
}

struct show {
	struct http_client *client;
	struct buf in;
	unsigned status;
	bool json, over;
	struct err why;
};

static void print_value(const json_t *v)
{
	const char *s = json_string_value(v);
	auto_free char *text = s ? NULL : json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	const char *shown = s ? s : text ? text : "";
	bool quote = s && strchr(shown, ' ');
	fputs(quote ? "\"" : "", stdout);
	text_put(stdout, shown);
	fputs(quote ? "\"" : "", stdout);
}

/* "TIME  SANDBOX  KIND  member=value …": every member but those of the chain. */
static void print_record(const json_t *record)
{
	static const char *const first[] = {"time", "sandbox", "kind", NULL};
	static const char *const hidden[] = {"prev", "hash", "seq", NULL};
	for (size_t i = 0; first[i]; i++) {
		const char *s = json_string_value(json_object_get(record, first[i]));
		text_put(stdout, s ? s : "-");
		fputs("  ", stdout);
	}
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)record, key, value)
	{
		bool skip = json_is_null(value) || str_eq(json_string_value(value), "");
		for (size_t i = 0; first[i] && !skip; i++)
			skip = str_eq(key, first[i]);
		for (size_t i = 0; hidden[i] && !skip; i++)
			skip = str_eq(key, hidden[i]);
		if (skip)
			continue;
		text_put(stdout, key);
		putchar('=');
		print_value(value);
		putchar(' ');
	}
	putchar('\n');
}

static void print_line(const struct show *s, const char *line, size_t n)
{
	if (s->json && !isatty(STDOUT_FILENO)) {
		fwrite(line, 1, n, stdout);
		putchar('\n');
		return;
	}
	auto_json json_t *record = s->json ? NULL : doc_parse_json(line, n, NULL);
	if (record) {
		print_record(record);
		return;
	}
	auto_free char *safe = text_safe(line, n);
	puts(safe ? safe : "");
}

static void show_over(struct show *s, const struct err *why)
{
	s->over = true;
	if (why)
		s->why = *why;
	if (s->client)
		http_client_close(take_ptr(s->client));
}

static void on_head(void *user, const struct http_head *head)
{
	((struct show *)user)->status = head->status;
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct show *s = user;
	struct err e = {0};
	if (buf_append(&s->in, p, n) < 0) {
		err_set(&e, EBADMSG, "a record is too long to be read");
		show_over(s, &e);
		return;
	}
	if (s->status != 200)
		return;
	for (const uint8_t *end; s->in.len && (end = memchr(s->in.data, '\n', s->in.len));) {
		size_t len = (size_t)(end - s->in.data);
		print_line(s, (const char *)s->in.data, len);
		buf_consume(&s->in, len + 1);
	}
	if (ferror(stdout))
		show_over(s, NULL);
}

static void on_end(void *user)
{
	struct show *s = user;
	struct err e = {0};
	if (s->status == 200) {
		show_over(s, NULL);
		return;
	}
	api_error(s->status, (const char *)s->in.data, s->in.len, &e);
	show_over(s, &e);
}

static void on_failed(void *user, const struct err *why)
{
	struct show *s = user;
	s->client = NULL;
	struct err e = *why;
	err_prefix(&e, "lost the connection to spaced");
	show_over(s, &e);
}

static const struct http_call_ops show_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.failed = on_failed,
};

static int show_run(struct cli *cli, const char *target, struct show *s, struct err *e)
{
	int r = api_open(cli, &s->client, e);
	if (r < 0)
		return r;
	struct http_head head;
	r = api_request(&head, "GET", target, NULL, 0);
	if (r == 0)
		r = http_client_call(s->client, &head, API_CALL_MS, &show_ops, s);
	http_head_done(&head);
	if (r < 0) {
		show_over(s, NULL);
		return err_sys(e, -r, "call to spaced");
	}
	while (!s->over && uv_run(&cli->loop, UV_RUN_ONCE))
		;
	*e = s->why;
	return -e->code;
}

static int show(struct cli *cli, const char *ref, bool json)
{
	struct err e = {0};
	auto_free char *encoded = ref ? http_percent_encode(ref, false) : NULL;
	auto_free char *target = !ref      ? strdup("/audit")
				 : encoded ? str_printf("/audit?sandbox=%s", encoded)
					   : NULL;
	struct show s = {.json = json};
	buf_init(&s.in, LINE_MAX_BYTES + 256 * 1024);
	int r = target ? show_run(cli, target, &s, &e) : err_set(&e, ENOMEM, "out of memory");
	buf_done(&s.in);
	return r < 0 ? cli_fail(&e) : CLI_OK;
}

static int verify(struct cli *cli, bool json)
{
	struct err e = {0};
	auto_json json_t *j = NULL;
	if (api_call(cli, "GET", "/audit/verify", NULL, &j, &e) < 0)
		return cli_fail(&e);
	bool ok = json_is_true(json_object_get(j, "ok"));
	if (json) {
		api_print_json(j);
	} else if (ok) {
		const char *head = json_string_value(json_object_get(j, "head"));
		printf("the audit log is whole: %lld records, head ",
		       (long long)json_integer_value(json_object_get(j, "records")));
		text_put(stdout, head ? head : "-");
		putchar('\n');
	} else {
		const char *problem = json_string_value(json_object_get(j, "problem"));
		err_set(&e, EBADMSG, "the audit log was changed: line %lld: %s",
			(long long)json_integer_value(json_object_get(j, "line")),
			problem ? problem : "?");
		cli_fail(&e);
	}
	return ok ? CLI_OK : CLI_DAMAGED;
}

static int audit_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	bool json = false;
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, audit_flag, &json, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && count >= 1 && count <= 2 && str_eq(argv[0], "show"))
		return show(cli, count == 2 ? argv[1] : NULL, json);
	if (r == 0 && count == 1 && str_eq(argv[0], "verify"))
		return verify(cli, json);
	if (r == 0)
		err_set(&e, EINVAL, "say 'audit show [SANDBOX]' or 'audit verify'");
	return cli_fail_usage(self, &e);
}

const struct verb verb_audit = {
	"audit",
	"show [SANDBOX] | verify",
	"show what happened, or check that the record is whole",
	audit_flags,
	audit_verb,
	"verify exits with 1 when a record was changed, removed or moved.\n",
};
