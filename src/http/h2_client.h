/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 towards a server: one connection, on which many clients have a call each. Source: RFC
 * 9113. A malformed response is an error of its stream; a server that floods, or inflates a head
 * past all bounds, loses the connection. Nothing is pushed. What a call's user does not read is
 * held back by windows: 256 KiB for each call, 4 MiB for all of them.
 */
#pragma once

#include "http/client.h"

struct h2_session;

/* Takes over a stream that has agreed on h2. closed(user) is called once, from the loop, when the
   connection has ended and each call on it was told; the pointer is then dead. NULL: no memory (the
   stream is closed). */
struct h2_session *h2_session_new(struct stream *s, void (*closed)(void *user), void *user);

/* A client for one call, on which failed() has EAGAIN where the server says that it has not
   processed the request. It outlives the session, to no use. NULL: there is no room, or no memory.
 */
struct http_client *h2_session_client(struct h2_session *h);

/* Until the server has said how much it takes at once, there is room for one client alone: a server
   that takes less than it gets may end the connection. Then told(user) is called, once, from the
   loop; it does nothing to the session. */
void h2_session_on_settings(struct h2_session *h, void (*told)(void *user));
bool h2_session_pending(const struct h2_session *h); /* it has not said so, and may */

bool h2_session_usable(const struct h2_session *h); /* for one more call */
bool h2_session_idle(const struct h2_session *h);   /* no client is on it */

/* At once, without closed(). No client may be on it. */
void h2_session_close(struct h2_session *h);
