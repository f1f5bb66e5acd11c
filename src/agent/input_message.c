/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: nearly all of a message is one base64 string, and a JSON parser takes
 * fifty times as long over it as the decoder does. So the run of base64 that follows "stdin" is cut
 * out before the rest is parsed, with STAND_IN in its place. Whether it was the right one is seen
 * afterwards, where the message has its input: if STAND_IN is there (it is no base64, and was
 * nowhere in the body), the run belongs there; if not, the body is parsed as it came. So is one
 * with escapes, in which things are not what they seem.
 */
#include "agent/input_message.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#define STAND_IN    '*'
#define WORTH_WHILE 1024 /* bytes; shorter bodies are parsed whole */

struct run {
	const char *p;
	size_t n;
};

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
		p++;
	return p;
}

/* Finds what may be the value of "stdin". */
static bool find_run(const char *body, size_t n, struct run *ret)
{
	static const char key[] = "\"stdin\"";
	const char *end = body + n;
	const char *p = memmem(body, n, key, sizeof(key) - 1);
	if (n < WORTH_WHILE || !p || memchr(body, STAND_IN, n) || memchr(body, '\\', n))
		return false;
	p = skip_space(p + sizeof(key) - 1, end);
	if (p == end || *p != ':')
		return false;
	p = skip_space(p + 1, end);
	if (p == end || *p != '"')
		return false;
	const char *close = memchr(p + 1, '"', (size_t)(end - p - 1));
	if (!close)
		return false;
	*ret = (struct run){p + 1, (size_t)(close - p - 1)};
	return true;
}

/* The message without the run; NULL when it is not the input, or the rest makes no sense. */
static json_t *parse_without(const char *body, size_t n, const struct run *run)
{
	static const char stand_in[] = {STAND_IN, '\0'};
	auto_buf struct buf rest;
	buf_init(&rest, n + 1);
	size_t before = (size_t)(run->p - body);
	if (buf_append(&rest, body, before) < 0 || buf_append(&rest, stand_in, 1) < 0 ||
	    buf_append(&rest, run->p + run->n, n - before - run->n) < 0)
		return NULL;
	auto_json json_t *root = doc_parse_json((const char *)rest.data, rest.len, NULL);
	const json_t *input = json_object_get(root, "input");
	if (!str_eq(json_string_value(json_object_get(input, "stdin")), stand_in))
		return NULL;
	return take_ptr(root);
}

static int decode(struct input_message *m, const char *text, size_t n, struct err *e)
{
	m->data = malloc(n / 4 * 3 + 3);
	if (!m->data)
		return err_set(e, ENOMEM, "out of memory");
	ssize_t len = base64_decode(text, n, m->data);
	if (len < 0)
		return err_set(e, EINVAL, "stdin is not base64");
	m->kind = INPUT_STDIN;
	m->len = (size_t)len;
	return 0;
}

static int read_whole(struct input_message *m, struct err *e)
{
	json_t *input = NULL;
	const char *text = NULL;
	int r = json_is_object(m->root) ? doc_want_object(m->root, "input", &input, e)
					: err_set(e, EINVAL, "the message is not an object");
	if (r == 0)
		r = doc_opt_string(input, "stdin", &text, e);
	if (r < 0)
		return r;
	if (json_object_get(input, "pty"))
		m->kind = INPUT_PTY;
	return m->kind == INPUT_PTY || !text ? 0 : decode(m, text, strlen(text), e);
}

int input_message_read(const char *body, size_t n, struct input_message *ret, struct err *e)
{
	struct input_message m = {0};
	struct run run;
	int r;
	if (find_run(body, n, &run))
		m.root = parse_without(body, n, &run);
	if (m.root && !json_object_get(json_object_get(m.root, "input"), "pty")) {
		r = decode(&m, run.p, run.n, e);
	} else {
		json_decref(m.root);
		m.root = doc_parse_json(body, n, e);
		r = m.root ? read_whole(&m, e) : -EINVAL;
	}
	if (r < 0)
		input_message_done(&m);
	else
		*ret = m;
	return r;
}

void input_message_done(struct input_message *m)
{
	json_decref(m->root);
	free(m->data);
	*m = (struct input_message){0};
}
