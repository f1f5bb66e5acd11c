/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/delay.h"

static void delay_over(uv_timer_t *timer);

static void delay_arm(struct delay *d)
{
	if (list_empty(&d->waiting))
		return;
	struct delayed *first = list_entry(d->waiting.next, struct delayed, link);
	uint64_t now = uv_now(d->timer.loop);
	uv_timer_start(&d->timer, delay_over, first->due_ms > now ? first->due_ms - now : 0, 0);
}

static void delay_over(uv_timer_t *timer)
{
	struct delay *d = timer->data;
	uint64_t now = uv_now(timer->loop);
	while (!list_empty(&d->waiting)) {
		struct delayed *w = list_entry(d->waiting.next, struct delayed, link);
		if (w->due_ms > now)
			break;
		delay_cancel(w);
		w->due(w);
	}
	delay_arm(d);
}

void delay_init(struct delay *d, uv_loop_t *loop, uint64_t ms)
{
	uv_timer_init(loop, &d->timer);
	d->timer.data = d;
	d->ms = ms;
	list_init(&d->waiting);
}

void delay_close(struct delay *d)
{
	uv_close((uv_handle_t *)&d->timer, NULL);
}

void delay_start(struct delay *d, struct delayed *w)
{
	if (w->link.next)
		return;
	w->due_ms = uv_now(d->timer.loop) + d->ms;
	list_append(&d->waiting, &w->link);
	if (!uv_is_active((uv_handle_t *)&d->timer))
		delay_arm(d);
}

void delay_cancel(struct delayed *w)
{
	if (!w->link.next)
		return;
	list_remove(&w->link);
	w->link.next = NULL;
}
