/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /hold and /release: what a machine needs to be frozen between any two bytes of output and
 * thawed elsewhere without losing one. What was read from a process must have arrived, for nobody
 * can ask for it again; what was not read yet is in the pipes, which are part of the machine.
 * Processes stand still from the one to the other, so that none runs in a copy whose random
 * generator is still that of the others. None is started meanwhile: it would stand still before its
 * execve(), for whose end the agent waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <linux/sockios.h>

#include "agent/agent.h"
#include "agent/client.h"
#include "base/log.h"

#define HOLD_BODY_MAX (64 * 1024) /* bytes, of no meaning yet */
#define HOLD_WAIT_MS  1000        /* for clients to take their output, processes to stand still */
#define HOLD_LOOK_MS  2           /* the kernel has no event for acknowledgement */
#define HOLD_MAX_MS   10000       /* without a word from the host: it may have died */

/* A call of /hold that waits. */
struct hold {
	struct agent *agent;
	struct http_exchange *x;
	uv_timer_t timer;
	uint64_t until; /* loop time */
};

static bool delivered(const struct connection *c)
{
	const struct stream *s = http_conn_stream(c->http);
	int unacknowledged = 0;
	if (stream_queued(s))
		return false;
	return ioctl(stream_fd(s), SIOCOUTQ, &unacknowledged) < 0 || !unacknowledged;
}

static bool all_delivered(const struct agent *a)
{
	list_for_each (link, &a->connections)
		if (!delivered(list_entry(link, struct connection, link)))
			return false;
	return true;
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void hold_free(struct hold *h)
{
	uv_close((uv_handle_t *)&h->timer, on_timer_closed);
}

static void look(struct hold *h)
{
	struct agent *a = h->agent;
	bool still = group_is_frozen(&a->group);
	if ((!still || !all_delivered(a)) && uv_now(a->loop) < h->until)
		return;
	if (!still)
		log_warn("not all processes stand still");
	struct http_exchange *x = h->x;
	hold_free(h);
	http_exchange_reply(x, 204, NULL, NULL, 0);
}

static void on_timer(uv_timer_t *timer)
{
	look(timer->data);
}

static void let_run(struct agent *a)
{
	int r = group_freeze(&a->group, false);
	if (r < 0 && r != -ENODEV)
		log_warn("processes can't be let go on: %s", strerror(-r));
	uv_timer_stop(&a->hold_timer);
	processes_release(&a->processes);
}

static void on_hold_timer(uv_timer_t *timer)
{
	struct agent *a = timer->data;
	log_warn("nobody has released what was held: it goes on");
	let_run(a);
	clients_go_on(a);
}

static void stand_still(struct agent *a)
{
	int r = group_freeze(&a->group, true);
	if (r < 0 && r != -ENODEV)
		log_warn("processes don't stand still: %s", strerror(-r));
	processes_hold(&a->processes);
	agent_hold_longer(a);
}

void agent_hold_longer(struct agent *a)
{
	if (a->processes.held)
		uv_timer_start(&a->hold_timer, on_hold_timer, HOLD_MAX_MS, 0);
}

static void on_hold(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct hold *h = user;
	(void)body, (void)n;
	h->x = x;
	h->until = uv_now(h->agent->loop) + HOLD_WAIT_MS;
	stand_still(h->agent);
	uv_timer_start(&h->timer, on_timer, HOLD_LOOK_MS, HOLD_LOOK_MS);
	look(h);
}

static void on_gone(void *user)
{
	hold_free(user);
}

void agent_hold(struct agent *a, struct http_exchange *x)
{
	struct hold *h = calloc(1, sizeof(*h));
	if (!h) {
		http_exchange_reply_error(x, 503, "out of memory");
		return;
	}
	h->agent = a;
	uv_timer_init(a->loop, &h->timer);
	h->timer.data = h;
	http_exchange_collect(x, HOLD_BODY_MAX, on_hold, on_gone, h);
}

static void on_release(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct agent *a = user;
	(void)body, (void)n;
	let_run(a);
	http_exchange_reply(x, 204, NULL, NULL, 0);
	clients_go_on(a);
}

void agent_release(struct agent *a, struct http_exchange *x)
{
	http_exchange_collect(x, HOLD_BODY_MAX, on_release, NULL, a);
}
