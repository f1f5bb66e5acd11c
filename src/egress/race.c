/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses are tried in turn, the families alternating, IPv6 first; the next one as soon as one
 * fails, or when none has answered for a while. The first that stands wins, the others are closed.
 * The timer has a life of its own in the loop, so that a race outlives its user until that is over.
 */
#include "egress/race.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

struct attempt {
	struct race *race;
	struct stream *stream; /* NULL: none, or failed */
};

struct race {
	uv_loop_t *loop;
	uv_timer_t timer;
	struct address list[RESOLVER_ADDRESSES_MAX];
	struct attempt attempts[RESOLVER_ADDRESSES_MAX];
	size_t count, next, open;
	uint16_t port;
	uint64_t connect_ms;
	struct err why; /* of the last that failed */
	const struct race_ops *ops;
	void *user;
};

static void race_closed(uv_handle_t *h)
{
	free(h->data);
}

void race_cancel(struct race *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->next; i++)
		if (r->attempts[i].stream)
			stream_close(take_ptr(r->attempts[i].stream));
	uv_close((uv_handle_t *)&r->timer, race_closed);
}

static void race_end(struct race *r, struct stream *winner)
{
	const struct race_ops *ops = r->ops;
	void *user = r->user;
	struct err why = r->why;
	race_cancel(r);
	ops->done(user, winner, &why);
}

static void race_next(struct race *r);

static void attempt_opened(void *user)
{
	struct attempt *a = user;
	race_end(a->race, take_ptr(a->stream));
}

static void attempt_closed(void *user, const struct err *why)
{
	struct attempt *a = user;
	struct race *r = a->race;
	a->stream = NULL;
	r->why = *why;
	r->open--;
	race_next(r);
}

static void attempt_data(void *user, const uint8_t *p, size_t n)
{
	(void)user, (void)p, (void)n; /* reading is off */
}

static const struct stream_ops attempt_ops = {
	.opened = attempt_opened,
	.data = attempt_data,
	.closed = attempt_closed,
};

static void on_timer(uv_timer_t *timer)
{
	race_next(timer->data);
}

/* Begins with the next address that can be begun with; the end, when nothing is left. */
static void race_next(struct race *r)
{
	while (r->next < r->count) {
		struct sockaddr_storage to;
		socklen_t len;
		struct attempt *a = &r->attempts[r->next];
		address_to_sockaddr(&r->list[r->next++], r->port, &to, &len);
		a->race = r;
		a->stream = stream_connect(r->loop, (struct sockaddr *)&to, len, r->connect_ms,
					   &attempt_ops, a, &r->why);
		if (!a->stream)
			continue;
		r->open++;
		uv_timer_start(&r->timer, on_timer, RACE_STAGGER_MS, 0);
		return;
	}
	if (!r->open)
		race_end(r, NULL);
}

/* Alternates the families in the order that the list has, IPv6 first. Source: RFC 8305, section 4.
 */
static void interleave(struct race *r, const struct address *list, size_t count)
{
	size_t at[2] = {0, 0};
	int family = 0;
	static const sa_family_t families[2] = {AF_INET6, AF_INET};
	while (r->count < count) {
		size_t *i = &at[family];
		while (*i < count && list[*i].family != families[family])
			(*i)++;
		if (*i < count)
			r->list[r->count++] = list[(*i)++];
		family = !family;
	}
}

struct race *race_start(uv_loop_t *loop, const struct address *list, size_t count, uint16_t port,
			uint64_t connect_ms, const struct race_ops *ops, void *user)
{
	struct race *r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->loop = loop;
	r->port = port;
	r->connect_ms = connect_ms;
	r->ops = ops;
	r->user = user;
	err_set(&r->why, EHOSTUNREACH, "no address to connect to");
	uv_timer_init(loop, &r->timer);
	r->timer.data = r;
	interleave(r, list, count);
	/* From the loop, for done() may be called at once. */
	uv_timer_start(&r->timer, on_timer, 0, 0);
	return r;
}
