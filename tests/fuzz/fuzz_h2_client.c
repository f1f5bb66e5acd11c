/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over one connection of HTTP/2: any bytes for a server, cut anywhere, whatever the users of
 * the calls do to which of them and when. */
#include <errno.h>
#include <string.h>

#include "http/h2_client.h"
#include "http/syntax.h"
#include "http_drive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CALLERS 5

struct site;

struct caller {
	struct site *site;
	struct http_client *c; /* NULL when over */
	uint64_t got, length;  /* of the body; length: UINT64_MAX when not told */
	bool active, head_seen, trailed, reading, owed;
};

struct site {
	struct drive d;
	struct h2_session *h; /* NULL when over */
	struct caller callers[CALLERS];
	unsigned in_call;
};

static void act(struct site *v, struct caller *of);

/* -- what is told -- */

static void told(const struct caller *k)
{
	require(!k->site->in_call && k->site->h && k->c && k->active);
}

static void check_fields(const struct http_fields *fields)
{
	for (size_t i = 0; i < fields->count; i++) {
		const struct http_field *f = &fields->list[i];
		require(http_is_token(f->name, strlen(f->name)));
		require(http_all(f->value, strlen(f->value), HTTP_CHAR_VALUE));
	}
}

static void on_head(void *user, const struct http_head *head)
{
	struct caller *k = user;
	told(k);
	require(!k->head_seen && head->status >= 200 && head->status < 600);
	check_fields(&head->fields);
	k->head_seen = true;
	k->length = head->framing == HTTP_LENGTH    ? head->length
		    : head->framing == HTTP_NO_BODY ? 0
						    : UINT64_MAX;
	act(k->site, k);
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct caller *k = user;
	told(k);
	require(k->head_seen && k->reading && !k->trailed && p && n);
	k->got += n;
	require(k->got <= k->length);
	act(k->site, k);
}

static void on_trailers(void *user, const struct http_fields *fields)
{
	struct caller *k = user;
	told(k);
	require(k->head_seen && k->reading && !k->trailed && fields->count);
	check_fields(fields);
	k->trailed = true;
	act(k->site, k);
}

static void on_end(void *user)
{
	struct caller *k = user;
	told(k);
	require(k->head_seen && (k->reading || k->trailed));
	require(k->length == UINT64_MAX || k->got == k->length);
	k->active = false;
	act(k->site, k);
}

static void on_drained(void *user)
{
	struct caller *k = user;
	told(k);
	require(k->owed);
	k->owed = false;
	act(k->site, k);
}

static void on_failed(void *user, const struct err *why)
{
	struct caller *k = user;
	told(k);
	require(why->code && !strstr(why->text, "memory"));
	require(why->code != EAGAIN || !k->head_seen);
	k->active = false;
	k->c = NULL;
	act(k->site, NULL);
}

static const struct http_call_ops call_ops = {
	.head = on_head,
	.body = on_body,
	.trailers = on_trailers,
	.end = on_end,
	.drained = on_drained,
	.failed = on_failed,
};

static void on_closed(void *user)
{
	struct site *v = user;
	require(!v->in_call && v->h);
	for (size_t i = 0; i < CALLERS; i++)
		require(!v->callers[i].active);
	v->h = NULL;
	act(v, NULL);
}

/* -- what is done -- */

static void call(struct caller *k, uint8_t how)
{
	static const char *const methods[] = {"GET", "HEAD", "POST", "CONNECT"};
	struct http_field list[] = {
		{"Host", "a"}, {"X-Api-Key", "b"}, {"Connection", "x"}, {"b d", ""}};
	struct http_head head = {
		.method = (char *)(uintptr_t)methods[how & 128 ? how >> 3 & 3 : 0],
		.target = (char[]){"/"},
		.fields = {.list = list, .count = how & 32 ? 3 + (how >> 6 & 1) : 1},
		.framing = how & 1 ? (how & 2 ? HTTP_CHUNKED : HTTP_LENGTH) : HTTP_NO_BODY,
		.length = 6,
	};
	bool reusable = http_client_reusable(k->c);
	int r = http_client_call(k->c, &head, how & 4 ? 60000 : 0, &call_ops, k);
	require(r == 0 || r == -EBUSY || r == -EPIPE || r == -EINVAL);
	require(r != 0 || (reusable && !k->active));
	require(r != -EBUSY || k->active);
	if (r == 0)
		*k = (struct caller){.site = k->site, .c = k->c, .active = true, .reading = true};
}

static void open_one(struct caller *k)
{
	struct site *v = k->site;
	if (!v->h)
		return;
	bool usable = h2_session_usable(v->h);
	k->c = h2_session_client(v->h);
	require(usable == !!k->c);
	if (k->c) {
		require(http_client_version(k->c) == 2 && !h2_session_idle(v->h));
		call(k, drive_next(&v->d));
	}
}

static void close_one(struct caller *k)
{
	http_client_close(k->c);
	k->c = NULL;
	k->active = false;
}

static void close_session(struct site *v)
{
	if (!v->h || !h2_session_idle(v->h))
		return;
	h2_session_close(v->h);
	v->h = NULL;
}

static void write_some(struct caller *k, size_t n)
{
	static const char zeros[40000];
	ssize_t r = http_client_write(k->c, zeros, n);
	require(r >= 0 || r == -EPIPE || r == -EMSGSIZE);
	require(r < 0 || k->active);
	if (r >= 0)
		k->owed = true;
}

static void trail(struct caller *k)
{
	struct http_field list[] = {{"X-Sum", "abc"}, {"Content-Length", "1"}};
	struct http_fields fields = {list, 2};
	require(http_client_trailers(k->c, &fields) <= 0); /* so many fields fit */
}

static void read_some(struct caller *k, bool on)
{
	k->reading = on;
	http_client_read(k->c, on);
}

static void act_on(struct caller *k, uint8_t what)
{
	switch (what % 16) {
	case 0:
	case 1:
	case 2:
		read_some(k, what % 16);
		break;
	case 3:
	case 4:
		write_some(k, what % 16 == 3 ? 3 : 40000);
		break;
	case 5:
		require(http_client_finish(k->c) <= 0);
		break;
	case 6:
		trail(k);
		break;
	case 7:
		close_one(k);
		break;
	case 8:
		require(!http_client_stream(k->c) || k->site->h);
		break;
	default: /* what most users do */
		if (!k->active && !http_client_reusable(k->c))
			close_one(k);
		else
			call(k, drive_next(&k->site->d));
		break;
	}
}

/* Something to the call that is meant: of, or one of the others. */
static void act(struct site *v, struct caller *of)
{
	uint8_t what = drive_next(&v->d);
	struct caller *k = of && of->c && what & 16 ? of : &v->callers[(what >> 5) % CALLERS];
	v->in_call++;
	if (k->c)
		act_on(k, what);
	else if (what % 16 == 7)
		close_session(v);
	else
		open_one(k);
	v->in_call--;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct site v = {0};
	drive_init(&v.d, data, size);
	for (size_t i = 0; i < CALLERS; i++)
		v.callers[i].site = &v;
	v.h = h2_session_new(v.d.s, on_closed, &v);
	require(v.h);
	open_one(&v.callers[0]);
	act(&v, &v.callers[0]);
	drive_turns(&v.d, 2);
	while (v.h && drive_piece(&v.d)) {
		drive_turns(&v.d, 3);
		act(&v, NULL);
	}
	drive_turns(&v.d, 3);
	drive_hang_up(&v.d);
	require(!v.h);
	for (size_t i = 0; i < CALLERS; i++) {
		require(!v.callers[i].active);
		if (v.callers[i].c)
			close_one(&v.callers[i]);
	}
	drive_done(&v.d);
	return 0;
}
