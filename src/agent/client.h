/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of a process: one call of Start or Connect, answered by a stream of events. All failures
 * are told inside the stream (HTTP 200), where clients find the message. It may go away at any
 * time: the process stays. One that does not read holds its process back.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/agent.h"
#include "agent/rpc.h"

struct client;

#define CLIENTS_DEFERRED_MAX 64

/* The message has come: the client is answered by one of client_fail() and client_attach(), before
 * or after returning, or deferred. text is valid during the call. */
typedef void client_message_fn(struct client *c, const char *text, size_t n);

struct client {
	struct agent *agent;
	struct http_exchange *x;
	struct process_watcher watcher;
	client_message_fn *message;
	size_t message_max;
	struct list deferred; /* among those of the agent */
	char *text;           /* its message, NULL unless deferred */
	size_t text_len;
	uv_timer_t timer;
	uint64_t keepalive_ms;
	uint64_t sent_at; /* loop time of the last event */
	uint64_t ends_at; /* loop time; 0: open end */
};

/* Takes a server-streaming call over: reads its one message, of at most max bytes, and hands it to
 * message. */
void client_open(struct agent *a, struct http_exchange *x, size_t max, client_message_fn *message);

/* Ends the stream with an error; c is dead. */
void client_fail(struct client *c, enum rpc_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Its message is handed over again by clients_go_on(), in the order of deferring; never when the
 * client goes away before. Past CLIENTS_DEFERRED_MAX it is failed. c is not to be used any more. */
void client_defer(struct client *c, const char *text, size_t n);
void clients_go_on(struct agent *a);

/* Sends what p writes from now on, until its end. timeout_ms ends the stream alone, 0: never. c is
 * not to be used any more. */
void client_attach(struct client *c, struct process *p, uint64_t timeout_ms);

/* The time limit that the call names, 0: none. */
uint64_t client_timeout_ms(const struct client *c);
