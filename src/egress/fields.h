/* SPDX-License-Identifier: Apache-2.0 */
/* Which header fields go on: hop-by-hop ones end at the gateway, in both directions. Source: RFC
 * 9110, section 7.6.1. */
#pragma once

#include "http/msg.h"
#include "vault/inject.h"

#define FIELDS_ROOM (HTTP_FIELDS_MAX + INJECTION_FIELDS_MAX + 6)

/* What passes of the fields that end at the gateway otherwise; or-ed. */
#define FIELDS_WEBSOCKET 1U /* Upgrade: websocket */
#define FIELDS_TRAILERS  2U /* TE: trailers, where the guest says so */
#define FIELDS_OVERRIDES 4U /* what names another method, path or host; not at grants' hosts */

/* A list that borrows its strings, for the time of one call. */
struct fields {
	struct http_field room[FIELDS_ROOM];
	struct http_fields list;
};

/* What goes to the host of a grant. */
struct fields_credential {
	const struct secret *secret;     /* NULL: this request does not get it */
	const struct inject_field *list; /* to put in */
	size_t count;
};

/*
 * The fields of a request that go upstream, Host (as given) first, what is put in last. With a
 * credential, no slot of one that the guest filled goes on, what is put in takes its place, and
 * nothing is asked for that would hide a value in the answer (encodings, ranges, extensions of
 * WebSocket). NULL: not the host of a grant.
 */
void fields_for_upstream(struct fields *f, const struct http_fields *in, const char *host,
			 const struct fields_credential *credential, unsigned hop);

/* The fields of a response that go to the guest. */
void fields_for_guest(struct fields *f, const struct http_fields *in, unsigned hop);

/* Trailers that go on, in either direction: no credential, and nothing that a head decides. */
void fields_for_trailers(struct fields *f, const struct http_fields *in);

/* Whether a field of that name lists the token, in any case. */
bool fields_have_token(const struct http_fields *in, const char *name, const char *token);
