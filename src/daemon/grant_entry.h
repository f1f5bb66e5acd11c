/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry: a credential that is granted to a sandbox, as JSON. Its form, which travels to the
 * gateway, is in docs/internals/gateway-control.md; these members are spaced's own:
 *
 *	stored                     a name in the node's store: its values come from the broker
 *	expires                    wall clock, ms (expiresMs is of the way in and of the way out)
 *	state                      "revoked"; "adding": the gateway has not answered
 *	unavailable                why there is no value at present
 *	used, usedBytes            as the gateway's records tell
 *	usedBefore, bytesBefore    of these, by gateways before the present one
 *	firstUse, lastUse          wall clock, ms
 *	alarmed                    the same: when a canary was touched last
 *	inherited                  a list of what the variables of its parents hold, newest last: a
 *	                           child's processes have them in their memory
 *
 * A value is in an entry only until a gateway has it. All here is pure; now_ms is wall clock.
 */
#pragma once

#include "base/doc.h"
#include "vault/secret.h"

/* As entries of the API become ours: expiresMs becomes expires. 0, -EINVAL, -ENOMEM. */
int grant_entry_accept(json_t *entry, uint64_t now_ms, struct err *e);

/* Takes what an entry leaves out from the definition whose name it has in "stored", in the form of
   an entry. What it says itself must be within the definition: never other hosts, methods or paths,
   longer, or more. */
int grant_entry_narrow(json_t *entry, const json_t *definition, struct err *e);

/* "good", "unavailable", "expired", "used up", "revoked". */
const char *grant_entry_state(const json_t *entry, uint64_t now_ms);

/* Whether it can be used, now or when its source has recovered. */
bool grant_entry_lives(const json_t *entry, uint64_t now_ms);

/* What a gateway gets that begins with it: new reference, NULL: no memory. With a value where the
   entry has one, else it says why there is none. What was used is taken off, and counted in
   usedBefore. */
json_t *grant_entry_wire(json_t *entry, uint64_t now_ms);

/* Its source fails. why may tell of the host: it is shown to the API's callers, not to the gateway,
   which tells guests. */
void grant_entry_fail(json_t *entry, const char *why);

/* What the API shows, what the audit log gets, and what is written down. New references. */
json_t *grant_entry_shown(const json_t *entry, uint64_t now_ms);
json_t *grant_entry_scope(const json_t *entry);
json_t *grant_entry_stored(const json_t *entry);

/* One that an earlier version wrote down, which had one placeholder. */
void grant_entry_update(json_t *entry);

/* What a child of a sandbox gets of it: a new reference. What is left is all that it may use. */
json_t *grant_entry_inherit(const json_t *entry);

/* What a child gets of it that is not granted it: placeholders are in its memory (secrets_put()). A
 * new reference; NULL: no memory. */
json_t *grant_entry_stray(const json_t *entry);

/* Counts what a record of the gateway tells of it. True: an alarm. */
bool grant_entry_count(json_t *entry, const json_t *event, uint64_t now_ms);
