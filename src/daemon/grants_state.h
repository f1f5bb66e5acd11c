/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of grants share: grant_request.c (entries, from requests), grants.c (their life
 * with a sandbox and its gateway), grant_calls.c (calls of the API).
 */
#pragma once

#define STRAYS_MAX 16 /* the latest */

#include "daemon/broker.h"
#include "daemon/gateway.h"
#include "daemon/grants.h"

struct addition; /* a call that adds a grant: grant_calls.c */

/* What runs of a grant whose values come from the broker. */
struct grant {
	struct list link; /* in the sandbox's */
	struct sandbox *sb;
	char *name;
	struct broker_want *want;
	json_t *value;  /* that it told last; NULL: none, or the gateway has it */
	bool told, due; /* it told something; the gateway is to hear of it */
	struct addition *addition;
};

/* Of an entry. The name is never NULL; stored: NULL where it is none of the node's store. */
const char *grant_name(const json_t *entry);
const char *grant_stored(const json_t *entry);
bool grant_is_brokered(const json_t *entry);
bool grant_is_state(const json_t *entry, const char *state);
bool grant_lives(const json_t *entry);

/* The entry of that name: borrowed, or NULL. */
json_t *grant_find(const json_t *entries, const char *name);

/* An entry as the API takes it: checked, and made (grants_make()) of a copy. New reference. */
int grant_make_asked(struct node *n, const json_t *asked, json_t **ret, struct err *e);

struct gateway *grants_gateway(const struct sandbox *sb); /* NULL: none that could be told */
void grants_store(struct sandbox *sb);                    /* what fails is in the log */

/* Tells the gateway; what is taken over. */
void grants_tell(struct sandbox *sb, const char *verb, json_t *what);

/* What runs of a grant: NULL where nothing does. */
struct grant *grant_running(const struct sandbox *sb, const char *name);

/* From now on the broker brings its values. NULL with e set. */
struct grant *grant_new(struct sandbox *sb, const json_t *entry, struct err *e);
void grant_free(struct grant *g);

/* In the record and the log; reason may be NULL. The gateway is still to be told. */
void grant_mark_revoked(struct sandbox *sb, json_t *entry, const char *reason);

/* The broker has told something of the grant that is being added. */
void grant_addition_goes_on(struct grant *g, json_t *entry);

/* Answers whoever adds it, and ends that. sb may be NULL: it is gone. */
void grant_addition_fails(struct addition *a, struct sandbox *sb, unsigned status, const char *why);
