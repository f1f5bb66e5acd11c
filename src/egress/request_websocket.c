/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that asks to become a WebSocket is judged, recorded and sent like any other. When the
 * server has agreed, and rightly, the guest is told, and the two streams are relayed; their frames
 * are looked through where there are credentials. Each byte is charged to the limits, and the
 * request stays open, for policies that change to find.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "egress/fields.h"
#include "egress/relay.h"
#include "egress/request_state.h"
#include "egress/websocket.h"

static bool relay_allow(void *user, enum relay_side from, size_t n, struct err *why)
{
	struct request *r = user;
	enum quota_way way = from == RELAY_GUEST ? QUOTA_UP : QUOTA_DOWN;
	if (!quota_charge(&r->hold, way, n, &r->excess)) {
		err_set(why, EDQUOT, "%s", r->excess.reason);
		return false;
	}
	r->spent = !request_pay_secret(r, n, why);
	return !r->spent;
}

static void pass_up(void *user, const uint8_t *p, size_t n)
{
	relay_pass(user, RELAY_GUEST, p, n);
}

static void pass_down(void *user, const uint8_t *p, size_t n)
{
	relay_pass(user, RELAY_SERVER, p, n);
}

static bool relay_filter(void *user, enum relay_side from, const uint8_t *p, size_t n,
			 struct err *why)
{
	struct request *r = user;
	bool up = from == RELAY_GUEST;
	struct frames *frames = up ? r->guard.frames_up : r->guard.frames_down;
	scan_sink pass = up ? pass_up : pass_down;
	unsigned index = 0;
	if (!frames) {
		pass(r->relay, p, n);
		return true;
	}
	int failed = request_guard_now(r);
	if (!failed)
		failed = frames_push(frames, p, n, pass, r->relay, &index);
	if (failed == -EACCES)
		r->stray = secrets_at(r->g->secrets, index);
	if (failed < 0)
		err_set(why, -failed, "%s",
			failed == -EBADMSG
				? "what is no frame of this WebSocket can't be looked through"
				: "a frame can't be passed on");
	else
		request_held(r);
	return failed == 0;
}

void request_relay_held(struct delayed *held)
{
	struct request *r = list_entry(held, struct request, held);
	if (!r->relay)
		return;
	guard_relent_up(&r->guard, pass_up, r->relay);
	guard_relent_down(&r->guard, pass_down, r->relay);
}

static void relay_count(struct request *r)
{
	r->bytes_up = relay_bytes(r->relay, RELAY_GUEST);
	r->bytes_down = relay_bytes(r->relay, RELAY_SERVER);
}

static void relay_ended(void *user, const struct err *why)
{
	struct request *r = user;
	relay_count(r);
	r->relay = NULL;
	if (r->excess.limit)
		request_refuse_excess(r, &r->excess);
	else if (r->stray)
		request_refuse_leak(r, r->stray, "a WebSocket");
	else if (r->spent)
		request_refuse_secret(r, 403, why->text);
	else
		request_end(r, r->status, why ? why->text : NULL);
}

static const struct relay_ops relay_ops = {
	.allow = relay_allow, .filter = relay_filter, .ended = relay_ended};

void request_unrelay(struct request *r)
{
	if (!r->relay)
		return;
	relay_count(r);
	relay_close(take_ptr(r->relay));
}

/* From here on the exchange and its connection are over, and what can still go wrong cuts. */
static void request_relay(struct request *r, struct stream *guest, const struct buf *early)
{
	struct buf early_server;
	struct relay_end from = {guest, early->data, early->len}, to = {0};
	http_client_detach(upstream_client(r->upstream), &to.stream, &early_server);
	upstream_drop(take_ptr(r->upstream));
	to.early = early_server.data;
	to.early_len = early_server.len;
	r->relay = relay_start(&from, &to, RELAY_IDLE_MS, &relay_ops, r);
	buf_done(&early_server);
	if (!r->relay)
		request_end(r, r->status, "the gateway has no memory");
}

void request_switch(struct request *r, const struct http_head *answer)
{
	struct err why;
	struct fields f;
	struct stream *guest;
	auto_buf struct buf early = {0};
	if (websocket_check_answer(http_exchange_head(r->x), answer, &why) < 0) {
		request_fail(r, 502, "the server did not agree to a WebSocket", why.text);
		return;
	}
	bool concerns = secrets_concern(r->g->secrets, r->dest.host);
	if (concerns && http_fields_get(&answer->fields, "Sec-WebSocket-Extensions")) {
		request_fail(r, 502, "the server chose an extension that was not offered", NULL);
		return;
	}
	fields_for_guest(&f, &answer->fields, FIELDS_WEBSOCKET);
	if (guard_switch(&r->guard, secrets_placeholders(r->g->secrets),
			 concerns ? secrets_values(r->g->secrets) : NULL, &f) < 0) {
		request_fail(r, 502, "the gateway has no memory", NULL);
		return;
	}
	if (!request_pay(r, QUOTA_DOWN, fields_bytes(&f.list)))
		return;
	if (http_exchange_switch(r->x, &f.list, &guest, &early) < 0) {
		request_fail(r, 502, "the answer of the server can't be passed on", NULL);
		return;
	}
	r->x = NULL;
	r->dest.method = "GET"; /* it was the exchange's */
	r->status = answer->status;
	r->answering = true;
	r->state = REQUEST_RELAYING;
	r->owner->switched(r->user);
	request_relay(r, guest, &early);
}
