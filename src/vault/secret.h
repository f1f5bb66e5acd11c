/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granted credentials as a gateway holds them: a name, values in locked memory, how they are put
 * in, and what they may be used for. The wire form of one, here called its entry, is in
 * docs/internals/gateway-control.md.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/doc.h"
#include "base/err.h"
#include "policy/policy.h"
#include "vault/scan.h"

#define SECRET_VALUE_MAX (64 * 1024) /* bytes */
#define SECRETS_MAX      64          /* in one set */

enum secret_kind {
	SECRET_BEARER,      /* Authorization: Bearer VALUE; for git's requests: basic */
	SECRET_BASIC,       /* Authorization: Basic base64(USER:VALUE) */
	SECRET_HEADER,      /* a field of any name, from a template */
	SECRET_QUERY,       /* a parameter of the query */
	SECRET_PLACEHOLDER, /* in the place of its placeholder, in one declared slot */
	SECRET_SIGV4,       /* AWS Signature Version 4 */
	SECRET_CERTIFICATE, /* the gateway's client certificate */
};

/* The values that a kind has. */
enum secret_part {
	SECRET_VALUE, /* token, password; sigv4: the secret access key; certificate: the private key
			 (PEM) */
	SECRET_ID,    /* sigv4: the access key id; certificate: the chain (PEM) */
	SECRET_SESSION, /* sigv4: the session token, if any */
	SECRET_PARTS,
};

struct secrets; /* a set, at most one secret for each host */
struct secret;  /* one in it; lives as long as the set, also when it is revoked */

struct secrets *secrets_new(void);
void secrets_free(struct secrets *s); /* wipes */

/*
 * Adds the secret of an entry, or renews the one of that name in place, scope and values. now_ms:
 * monotonic, what its time to live counts from. Refused: a name that is no variable's, empty
 * values, control characters in them, hosts that are no name or pattern, a host that another secret
 * (which is not revoked) has. e names the secret and never holds a value. On failure all is as it
 * was. A stray entry ({"name","stray":true,"variables"}) is no credential: its placeholders are
 * another sandbox's, and are recognised. 0, -EINVAL, -ENOMEM.
 */
int secrets_put(struct secrets *s, const json_t *entry, uint64_t now_ms, struct err *e);

/* New values for the secret that an update ({"name","value"} or {"name","unavailable"}) names; its
   scope and counts stay, requests under way go on. 0, -ENOENT, -EINVAL, -ENOMEM. */
int secrets_renew(struct secrets *s, const json_t *update, struct err *e);

/* Takes it back: requests for it are refused from now on. Its values stay, to be recognised in what
   comes back from its hosts. 0, -ENOENT. */
int secrets_revoke(struct secrets *s, const char *name);

/* Revokes one whose value is being guessed (scan.h), and returns it; NULL when there is none. */
struct secret *secrets_stop_guessed(struct secrets *s);
bool secret_was_guessed(const struct secret *s); /* it was revoked for that */

/* Revokes all that keep (an array of entries) does not name. */
void secrets_keep_only(struct secrets *s, const json_t *keep);

/* For each secret and host: some rule of p must allow https to it, and none before it pass such
 * connections on unread; else -EINVAL with e saying which and what to add. */
int secrets_check(const struct secrets *s, const struct policy *p, struct err *e);

/* The secret within whose hosts, methods and paths this destination is, whatever its state; NULL:
 * none. Of revoked ones the latest, and none where another that is not has the host. https alone,
 * and no literal address. */
struct secret *secrets_for(const struct secrets *s, const struct policy_dest *dest);

/* Whether any secret, in whatever state, has this host: what comes from there may hold its value.
 */
bool secrets_concern(const struct secrets *s, const char *host);

/* Why it can't be used at the moment: 0, or the status to answer (403: it ended, 503: its source
   fails) with the reason in e. now_ms: monotonic. */
unsigned secret_unusable(const struct secret *s, uint64_t now_ms, struct err *e);

/* As above, for a request that has had its use: how many uses are left does not matter. */
unsigned secret_stopped(const struct secret *s, uint64_t now_ms, struct err *e);

/* Counts one use, which secret_unusable() has allowed; its number, from 1. */
uint64_t secret_use(struct secret *s);

/* Counts bytes of a request or response that it was used for. False: there were not that many left,
   and none are from now on. */
bool secret_charge(struct secret *s, uint64_t bytes);
uint64_t secret_bytes(const struct secret *s); /* counted so far */

/* When the next one expires, monotonic ms; 0: none does. */
uint64_t secrets_next_end_ms(const struct secrets *s, uint64_t now_ms);

const char *secret_name(const struct secret *s);
enum secret_kind secret_kind(const struct secret *s);
bool secret_is_canary(const struct secret *s);
bool secret_has_host(const struct secret *s, const char *host);

/* Raised by whatever changes its values: what was made with others is not to be used any more. */
unsigned secret_version(const struct secret *s);

/* A value, ended by a NUL that does not count; NULL when there is none. Borrowed until the set
 * changes. */
const char *secret_value(const struct secret *s, enum secret_part part, size_t *ret_len);

/* What its variables hold in the guest; NULL past the last. Borrowed. */
const char *secret_placeholder_at(const struct secret *s, size_t i);

/* Member of its recipe ("inject"), NULL where it has none. Borrowed. */
const char *secret_recipe(const struct secret *s, const char *member);

/* What to look for in bytes from the outside (values) and from the guest (placeholders): an index
   into the set tells whose. NULL: nothing. Borrowed until the set changes. */
struct needles *secrets_values(struct secrets *s);
struct needles *secrets_placeholders(struct secrets *s);
struct secret *secrets_at(const struct secrets *s, unsigned index);

/* True for request fields that carry credentials and are stripped before one is put in
 * (Authorization, Cookie's kin, …). */
bool secret_is_credential_field(const char *name);
