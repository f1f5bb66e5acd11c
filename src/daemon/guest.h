/* SPDX-License-Identifier: Apache-2.0 */
/* Talking to the agent in a guest. Whatever it answers is the guest's word: bounded, timed, never
 * trusted. */
#pragma once

#include "base/err.h"
#include "daemon/sandbox.h"
#include "http/client.h"

/* A new connection to the agent. NULL with e set. */
struct http_client *guest_connect(struct sandbox *sb, struct err *e);

struct guest_request {
	const char *method, *target;
	const char *content_type; /* NULL: none */
	const char *token;        /* NULL: the agent wants none yet */
	const char *linux_user;   /* NULL: the default user */
};

/* The head of a request to the agent, with the fields it wants from us, the time among them;
 * http_head_done() frees it. 0 or -errno. */
int guest_head(const struct guest_request *q, struct http_head *ret);

/* A POST (or, without a body, a GET) to the agent of a place. done is called once, when its answer has ended, unless cancelled; status is 0
   when why is set. What it answers is dropped. timeout_ms: to the answer's end. NULL with e set: it could not start. */
struct guest_call;
struct guest_call *guest_call(struct place *p, const struct guest_request *q, const void *body,
			      size_t n, uint64_t timeout_ms,
			      void (*done)(void *user, unsigned status, const struct err *why),
			      void *user, struct err *e);
void guest_call_cancel(struct guest_call *c);
