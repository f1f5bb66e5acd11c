/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Connect protocol's side of HTTP: errors, unary answers, what the request's fields say.
 * Source: connectrpc.com, "Connect protocol reference".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/doc.h"
#include "http/server.h"

enum rpc_code {
	RPC_INVALID_ARGUMENT,
	RPC_DEADLINE_EXCEEDED,
	RPC_NOT_FOUND,
	RPC_RESOURCE_EXHAUSTED,
	RPC_INTERNAL,
	RPC_UNIMPLEMENTED,
	RPC_UNAVAILABLE,
	RPC_UNAUTHENTICATED,
};

const char *rpc_code_name(enum rpc_code code);
unsigned rpc_code_status(enum rpc_code code);

/* Answers a unary call with an error; x is dead. */
void rpc_fail(struct http_exchange *x, enum rpc_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Answers a unary call with a message (a reference is taken over; NULL means no memory); x is dead.
 */
void rpc_reply(struct http_exchange *x, json_t *message);

/* Whether the request's Content-Type is type, with or without parameters. */
bool rpc_has_type(struct http_exchange *x, const char *type);

/* The unsigned number in a field; otherwise when it is missing, no number or not within 1 .. max.
 */
uint64_t rpc_number(struct http_exchange *x, const char *field, uint64_t max, uint64_t otherwise);
