/* SPDX-License-Identifier: Apache-2.0 */
/* Which header fields go on: hop-by-hop ones end at the gateway, in both directions. Source: RFC
 * 9110, section 7.6.1. */
#pragma once

#include "http/msg.h"

#define FIELDS_ROOM (HTTP_FIELDS_MAX + 4)

/* A list that borrows its strings, for the time of one call. */
struct fields {
	struct http_field room[FIELDS_ROOM];
	struct http_fields list;
};

/* The fields of a request that go upstream, Host (as given) first. credential: the value of
   Authorization to put in, which takes the place of every credential that the guest sent and asks
   for an unencoded answer; NULL: none. */
void fields_for_upstream(struct fields *f, const struct http_fields *in, const char *host,
			 const char *credential);

/* The fields of a response that go to the guest. */
void fields_for_guest(struct fields *f, const struct http_fields *in);

/* True when the request asks to become a WebSocket. */
bool fields_ask_websocket(const struct http_fields *in);
