/* SPDX-License-Identifier: Apache-2.0 */
/* Talking to the agent in a sandbox. Whatever it answers is the guest's word: bounded, timed, never
 * trusted. */
#pragma once

#include "base/err.h"
#include "daemon/sandbox.h"
#include "http/client.h"

/* A new connection to the agent. NULL with e set. */
struct http_client *guest_connect(struct sandbox *sb, struct err *e);

/* The head of a request to the agent, with the fields it wants from us; http_head_done() frees it.
 * linux_user NULL: the default user. 0 or -errno. */
int guest_head(const struct sandbox *sb, const char *method, const char *target,
	       const char *content_type, const char *linux_user, struct http_head *ret);

/* POSTs a JSON text and waits for the status; the answer's body is dropped. done is called once,
   unless cancelled; status is 0 when why is set. NULL with e set: it could not start. */
struct guest_call;
struct guest_call *guest_call(struct sandbox *sb, const char *target, const char *json,
			      uint64_t timeout_ms,
			      void (*done)(void *user, unsigned status, const struct err *why),
			      void *user, struct err *e);
void guest_call_cancel(struct guest_call *c);
