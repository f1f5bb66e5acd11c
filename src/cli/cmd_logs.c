/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space logs: what a task has printed. --tail needs no memory: a first pass counts the lines, the
 * second skips all but the last ones.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/decisions.h"
#include "cli/events.h"
#include "cli/task.h"

enum { LOGS_FOLLOW = 1, LOGS_TAIL, LOGS_JSON, LOGS_EGRESS };

static const struct flag logs_flags[] = {
	{LOGS_FOLLOW, 'f', "follow", FLAG_SWITCH, NULL, "go on until the task ends"},
	{LOGS_TAIL, 'n', "tail", FLAG_VALUE, "N", "only the last N lines (all: everything)"},
	{LOGS_EGRESS, 0, "egress", FLAG_SWITCH, NULL,
	 "what its gateway let out and refused, instead"},
	{LOGS_JSON, 0, "json", FLAG_SWITCH, NULL, "print events as lines of JSON"},
	{0},
};

struct logs_options {
	bool follow, json, egress;
	uint64_t tail; /* UINT64_MAX: all */
};

static int logs_flag(void *user, const struct flag_found *f, struct err *e)
{
	struct logs_options *o = user;
	if (f->id == LOGS_FOLLOW)
		o->follow = f->on;
	else if (f->id == LOGS_JSON)
		o->json = f->on;
	else if (f->id == LOGS_EGRESS)
		o->egress = f->on;
	else if (str_eq(f->value, "all"))
		o->tail = UINT64_MAX;
	else if (str_to_u64(f->value, 0, INT64_MAX, &o->tail) < 0)
		return err_set(e, EINVAL, "--tail takes a number of lines or all, not '%.40s'",
			       f->value);
	return 0;
}

struct count {
	struct events events;
	uint64_t lines;
	bool partial; /* bytes behind the last newline */
	bool over;
	struct err why;
};

static bool count_event(void *user, json_t *event)
{
	struct count *c = user;
	json_t *data = json_object_get(event, "data");
	json_t *text = json_object_get(data, "stdout");
	if (!text)
		text = json_object_get(data, "stderr");
	size_t n = json_string_length(text);
	if (!n)
		return true;
	auto_free char *bytes = malloc(n / 4 * 3 + 3);
	ssize_t len = bytes ? base64_decode(json_string_value(text), n, bytes) : 0;
	for (ssize_t i = 0; i < len; i++)
		c->lines += bytes[i] == '\n';
	if (len > 0)
		c->partial = bytes[len - 1] != '\n';
	return true;
}

static void count_over(void *user, const char *code, const struct err *why)
{
	struct count *c = user;
	c->over = true;
	if (why && (!code || str_eq(code, "refused")))
		c->why = *why;
}

static const struct events_ops count_ops = {.event = count_event, .over = count_over};

static int count_lines(struct cli *cli, const char *target, uint64_t *ret_lines, struct err *e)
{
	struct http_client *client;
	int r = api_open(cli, &client, e);
	if (r < 0)
		return r;
	struct http_head head;
	if (api_request(&head, "GET", target, NULL, 0) < 0) {
		http_client_close(client);
		return err_set(e, ENOMEM, "out of memory");
	}
	struct count c = {0};
	r = events_start(&c.events, client, &head, NULL, 0, &count_ops, &c, e);
	http_head_done(&head);
	if (r < 0)
		return r;
	while (!c.over && uv_run(&cli->loop, UV_RUN_ONCE))
		;
	events_close(&c.events);
	if (c.why.code) {
		*e = c.why;
		return -e->code;
	}
	*ret_lines = c.lines + c.partial;
	return 0;
}

static int logs_verb(struct cli *cli, const struct verb *self, int argc, char **argv)
{
	struct logs_options o = {.tail = UINT64_MAX};
	struct err e = {0};
	int count = 0;
	int r = verb_parse(self, argc, argv, logs_flag, &o, &count, &e);
	if (r > 0)
		return CLI_OK;
	if (r == 0 && count != 1)
		r = err_set(&e, EINVAL, "name one sandbox");
	if (r == 0 && o.egress && o.tail != UINT64_MAX)
		r = err_set(&e, EINVAL, "--egress and --tail exclude each other");
	if (r < 0)
		return cli_fail_usage(self, &e);
	if (o.egress)
		return decisions_show(cli, argv[0], o.follow, o.json);
	auto_free char *all = api_sandbox_path(argv[0], "/logs");
	auto_free char *follow = api_sandbox_path(argv[0], "/logs?follow=true");
	struct task_spec spec = {
		.method = "GET",
		.target = o.follow ? follow : all,
		.sandbox_name = argv[0],
		.json = o.json,
	};
	if (!all || !follow)
		return cli_fail(&(struct err){ENOMEM, "out of memory"});
	if (o.tail != UINT64_MAX) {
		uint64_t lines = 0;
		if (count_lines(cli, all, &lines, &e) < 0)
			return cli_fail(&e);
		spec.skip_lines = lines > o.tail ? lines - o.tail : 0;
	}
	return task_attach(cli, &spec);
}

const struct verb verb_logs = {
	"logs",
	"[-f] [--tail N] [--egress] SANDBOX",
	"show what a task has printed",
	logs_flags,
	logs_verb,
	"--egress has one line for each decision of the gateway, from the audit log: time, ALLOW or DENY, what was\n"
	"asked for, how it ended, and by which rule and with which secret, or why not. With -f a request is shown\n"
	"when it is let out, and again (END) when it is over.\n",
};
