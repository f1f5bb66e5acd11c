/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request has two records: that it was allowed, and how it ended. Who follows sees both as they
 * come; else they make one line, for which the first waits for the second.
 */
#include "cli/decisions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/api.h"
#include "cli/events.h"
#include "cli/text.h"

#define OPEN_MAX 16384 /* requests whose end is not told yet; more are shown without */

struct decisions {
	struct events events;
	bool follow, json, over;
	json_t *open; /* requests by their id */
	int code;
};

static const char *text_of(const json_t *record, const char *key)
{
	const char *s = json_string_value(json_object_get(record, key));
	return s ? s : "";
}

static long long number_of(const json_t *record, const char *key)
{
	return (long long)json_integer_value(json_object_get(record, key));
}

static bool is_usual(const char *scheme, long long port)
{
	return (str_eq(scheme, "http") && port == 80) || (str_eq(scheme, "https") && port == 443) ||
	       (str_eq(scheme, "tls") && port == 443);
}

/* "  GET https://host[:port]/path" */
static void put_target(const json_t *record)
{
	const char *scheme = text_of(record, "scheme"), *host = text_of(record, "host");
	long long port = number_of(record, "port");
	if (*text_of(record, "method")) {
		text_put(stdout, text_of(record, "method"));
		putchar(' ');
	}
	if (*scheme) {
		text_put(stdout, scheme);
		fputs("://", stdout);
	}
	bool bare = strchr(host, ':'); /* an IPv6 address */
	fputs(bare ? "[" : "", stdout);
	text_put(stdout, *host ? host : "?");
	fputs(bare ? "]" : "", stdout);
	if (!is_usual(scheme, port))
		printf(":%lld", port);
	text_put(stdout, text_of(record, "path"));
}

static void put_head(const json_t *record, const char *word)
{
	text_put(stdout, text_of(record, "time"));
	printf("  %-5s  ", word);
}

static void put_grant(const json_t *request)
{
	fputs("  by ", stdout);
	text_put(stdout, text_of(request, "rule"));
	if (*text_of(request, "credential")) {
		fputs("  with ", stdout);
		text_put(stdout, text_of(request, "credential"));
	}
}

/* "  200  up 12 B  down 345 B  6 ms" */
static void put_result(const json_t *response)
{
	if (json_object_get(response, "status"))
		printf("  %lld", number_of(response, "status"));
	printf("  up %lld B  down %lld B  %lld ms", number_of(response, "bytes_up"),
	       number_of(response, "bytes_down"), number_of(response, "ms"));
	if (*text_of(response, "error")) {
		fputs("  error: ", stdout);
		text_put(stdout, text_of(response, "error"));
	}
}

static void put_allowed(const json_t *request, const json_t *response)
{
	put_head(request, "ALLOW");
	put_target(request);
	if (response)
		put_result(response);
	put_grant(request);
	putchar('\n');
}

static void put_denied(const json_t *record)
{
	put_head(record, "DENY");
	put_target(record);
	fputs("  ", stdout);
	text_put(stdout, text_of(record, "reason"));
	if (*text_of(record, "rule")) {
		fputs("  by ", stdout);
		text_put(stdout, text_of(record, "rule"));
	}
	putchar('\n');
}

/* A name that is not answered is how most of what is denied ends. */
static void put_name(const json_t *record)
{
	const char *answer = text_of(record, "answer");
	bool denied = str_eq(answer, "NXDOMAIN") || str_eq(answer, "REFUSED");
	put_head(record, denied ? "DENY" : "ALLOW");
	fputs("DNS ", stdout);
	text_put(stdout, text_of(record, "name"));
	const json_t *type = json_object_get(record, "qtype");
	if (json_is_integer(type))
		printf(" type %lld", (long long)json_integer_value(type));
	else
		printf(" %s", text_of(record, "qtype"));
	fputs("  ", stdout);
	text_put(stdout, answer);
	putchar('\n');
}

/* The key under which a request waits for its end. */
static char *key_of(const json_t *record)
{
	return json_dumps(json_object_get(record, "id"), JSON_ENCODE_ANY);
}

static void on_request(struct decisions *d, json_t *record)
{
	auto_free char *key = key_of(record);
	bool kept = key && json_object_size(d->open) < OPEN_MAX &&
		    json_object_set(d->open, key, record) == 0;
	if (d->follow || !kept)
		put_allowed(record, NULL);
}

static void on_response(struct decisions *d, const json_t *record)
{
	auto_free char *key = key_of(record);
	json_t *request = key ? json_object_get(d->open, key) : NULL;
	if (!request)
		return; /* it was shown without its end */
	if (d->follow) {
		put_head(record, "END");
		put_target(request);
		put_result(record);
		putchar('\n');
	} else {
		put_allowed(request, record);
	}
	json_object_del(d->open, key);
}

static bool on_event(void *user, json_t *event)
{
	struct decisions *d = user;
	json_t *record = json_object_get(event, "egress");
	const char *kind = text_of(record, "kind");
	if (!record)
		return true;
	if (d->json)
		api_print_line(record);
	else if (str_eq(kind, "egress.request"))
		on_request(d, record);
	else if (str_eq(kind, "egress.response"))
		on_response(d, record);
	else if (str_eq(kind, "egress.deny"))
		put_denied(record);
	else if (str_eq(kind, "egress.dns"))
		put_name(record);
	if (d->follow)
		fflush(stdout);
	if (ferror(stdout))
		d->over = true;
	return !d->over;
}

static void on_over(void *user, const char *code, const struct err *why)
{
	struct decisions *d = user;
	(void)code;
	d->over = true;
	if (why)
		d->code = cli_fail(why);
}

static const struct events_ops events_ops = {.event = on_event, .over = on_over};

static int begin(struct cli *cli, const char *ref, struct decisions *d, struct err *e)
{
	auto_free char *target =
		api_sandbox_path(ref, d->follow ? "/egress?follow=true" : "/egress");
	struct http_client *client;
	struct http_head head;
	if (!target)
		return err_set(e, ENOMEM, "out of memory");
	int r = api_open(cli, &client, e);
	if (r < 0)
		return r;
	if (api_request(&head, "GET", target, NULL, 0) < 0) {
		http_client_close(client);
		return err_set(e, ENOMEM, "out of memory");
	}
	r = events_start(&d->events, client, &head, NULL, 0, &events_ops, d, e);
	http_head_done(&head);
	return r;
}

int decisions_show(struct cli *cli, const char *ref, bool follow, bool json)
{
	struct err e = {0};
	struct decisions d = {.follow = follow, .json = json, .code = CLI_OK};
	d.open = json_object();
	if (!d.open || begin(cli, ref, &d, &e) < 0) {
		json_decref(d.open);
		return cli_fail(e.code ? &e : &(struct err){ENOMEM, "out of memory"});
	}
	while (!d.over && uv_run(&cli->loop, UV_RUN_ONCE))
		;
	events_close(&d.events);
	const char *key;
	json_t *request;
	if (!follow)
		json_object_foreach(d.open, key, request) put_allowed(request, NULL);
	json_decref(d.open);
	return d.code;
}
