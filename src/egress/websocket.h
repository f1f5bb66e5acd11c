/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opening handshake of a WebSocket, both halves: what the guest asks, and whether the server
 * really answers that. Pure; what flows afterwards is nobody's business here.
 * Source: RFC 6455, sections 4.1 and 4.2.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "http/msg.h"

#define WEBSOCKET_ACCEPT_SIZE 29 /* bytes with the NUL */

/* Whether a request asks to become a WebSocket: both its Connection and its Upgrade say so. */
bool websocket_wanted(const struct http_head *request);

/* 0, or -EBADMSG with e saying what is wrong: it is no bodyless GET of HTTP/1.1, or not one version
 * 13, or not one key of 16 bytes in canonical base64. */
int websocket_check_request(const struct http_head *request, struct err *e);

/* What a server must answer to this key. 0 or -ENOMEM. */
int websocket_accept(const char *key, char out[WEBSOCKET_ACCEPT_SIZE]);

/* 0, or -EBADMSG with e saying why this 101 does not answer the request: it is for another
 * protocol, has not the one right Sec-WebSocket-Accept, or speaks a subprotocol that was not
 * offered. */
int websocket_check_answer(const struct http_head *request, const struct http_head *answer,
			   struct err *e);
