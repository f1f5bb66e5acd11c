/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set. A secret keeps its place when it is renewed or revoked, so that whoever holds one need
 * not be told; a revoked one stays as a mark on its hosts, and its values stay to be recognised in
 * what comes from there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "vault/inject.h"
#include "vault/secret_state.h"

#define PAST_HOSTS_MAX 1024 /* of one secret */

struct secrets {
	struct secret *list[SECRETS_MAX];
	size_t count;
	uint64_t revocations;
	struct needles *values, *placeholders; /* of all, also of those that were revoked */
};

static void words_done(struct secret_words *w)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->list[i]);
	free(w->list);
}

void secret_done(struct secret *s)
{
	for (size_t i = 0; i < SECRET_PARTS; i++)
		value_done(&s->parts[i]);
	for (size_t i = 0; i < SECRET_PAST_MAX; i++)
		value_done(&s->past[i]);
	words_done(&s->hosts);
	words_done(&s->past_hosts);
	words_done(&s->methods);
	words_done(&s->paths);
	words_done(&s->placeholders);
	json_decref(s->recipe);
	free(s->name);
	*s = (struct secret){0};
}

struct secrets *secrets_new(void)
{
	return calloc(1, sizeof(struct secrets));
}

void secrets_free(struct secrets *set)
{
	if (!set)
		return;
	for (size_t i = 0; i < set->count; i++) {
		secret_done(set->list[i]);
		free(set->list[i]);
	}
	needles_put(set->values);
	needles_put(set->placeholders);
	free(set);
}

static struct secret *find_kind(const struct secrets *set, const char *name, bool stray)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->list[i]->stray == stray && str_eq(set->list[i]->name, name))
			return set->list[i];
	return NULL;
}

static struct secret *find(const struct secrets *set, const char *name)
{
	return find_kind(set, name, false);
}

/* -- changes -- */

/* Whether a living secret of another name has a host of s, too. */
static int check_hosts(const struct secrets *set, const struct secret *s, struct err *e)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct secret *other = set->list[i];
		if (other->revoked || str_eq(other->name, s->name))
			continue;
		for (size_t k = 0; k < other->hosts.count; k++)
			for (size_t m = 0; m < s->hosts.count; m++)
				if (patterns_overlap(other->hosts.list[k], s->hosts.list[m]))
					return err_set(
						e, EINVAL,
						"secrets %s and %s are both for %s: one host gets "
						"one credential",
						other->name, s->name, s->hosts.list[m]);
	}
	return 0;
}

struct spelling {
	struct needles *needles;
	unsigned index;
};

static int add_spelling(void *user, const char *text, size_t len)
{
	struct spelling *s = user;
	return needles_add(s->needles, text, len, s->index);
}

static int add_value(const struct secret *s, const struct value *v, struct spelling *to)
{
	needles_next(to->needles);
	return v->text ? inject_spellings(s, v->text, add_spelling, to) : 0;
}

/* What of it a server is sent, and may send back, in the spellings in which it is sent. A
 * certificate's key is never sent. */
static int add_values(struct needles *n, const struct secret *s, unsigned index)
{
	struct spelling to = {n, index};
	int r = 0;
	if (s->kind == SECRET_CERTIFICATE)
		return 0;
	for (size_t i = 0; r == 0 && i < SECRET_PARTS; i++)
		r = add_value(s, &s->parts[i], &to);
	for (size_t i = 0; r == 0 && i < SECRET_PAST_MAX; i++)
		r = add_value(s, &s->past[i], &to);
	return r;
}

static int add_placeholders(struct needles *n, const struct secret *s, unsigned index)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < s->placeholders.count; i++)
		r = needles_add(n, s->placeholders.list[i], strlen(s->placeholders.list[i]), index);
	return r;
}

static struct needles *gather(const struct secrets *set, struct needles *before,
			      int (*add)(struct needles *n, const struct secret *s, unsigned index))
{
	struct needles *n = needles_new(before);
	int r = n ? 0 : -ENOMEM;
	for (unsigned i = 0; r == 0 && i < set->count; i++)
		r = add(n, set->list[i], i);
	if (r == 0)
		r = needles_compile(n);
	if (r == 0)
		return n;
	needles_put(n);
	return NULL;
}

/* After a change of s. One that can't be recognised is not to be used. */
static int recognise(struct secrets *set, struct secret *s, struct err *e)
{
	struct needles *values = gather(set, set->values, add_values);
	struct needles *placeholders = gather(set, set->placeholders, add_placeholders);
	if (!values || !placeholders) {
		needles_put(values);
		needles_put(placeholders);
		s->revoked = true;
		return err_set(e, ENOMEM, "secret %s: no memory to recognise it", s->name);
	}
	needles_put(set->values);
	needles_put(set->placeholders);
	set->values = values;
	set->placeholders = placeholders;
	return 0;
}

/* After it was granted. A renewal forgets nothing: it may bring the same value again. */
static int recognise_granted(struct secrets *set, struct secret *s, struct err *e)
{
	int r = recognise(set, s, e);
	for (unsigned i = 0; r == 0 && i < set->count; i++)
		if (set->list[i] == s)
			needles_forget_guesses(set->values, i);
	return r;
}

static bool same_value(const struct value *a, const struct value *b)
{
	return a->text && a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

void secret_retire(struct secret *s, struct value *v)
{
	bool known = !v->text;
	for (size_t i = 0; i < SECRET_PARTS; i++)
		known = known || same_value(v, &s->parts[i]);
	for (size_t i = 0; i < SECRET_PAST_MAX; i++)
		known = known || same_value(v, &s->past[i]);
	if (known) {
		value_done(v);
		return;
	}
	value_done(&s->past[SECRET_PAST_MAX - 1]);
	memmove(&s->past[1], &s->past[0], (SECRET_PAST_MAX - 1) * sizeof(s->past[0]));
	s->past[0] = *v;
	*v = (struct value){0};
}

static bool has_word(const struct secret_words *w, const char *text)
{
	for (size_t i = 0; i < w->count; i++)
		if (str_eq(w->list[i], text))
			return true;
	return false;
}

/* Hosts of w that fresh is not for go to those that it was for. */
static void leave_hosts(struct secret *fresh, struct secret_words *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (!has_word(&fresh->hosts, w->list[i]) &&
		    !has_word(&fresh->past_hosts, w->list[i]))
			fresh->past_hosts.list[fresh->past_hosts.count++] = take_ptr(w->list[i]);
}

/* Puts a secret in the place of the one of its name, which it takes the history of. */
static int replace(struct secret *old, struct secret *fresh, struct err *e)
{
	size_t most = old->hosts.count + old->past_hosts.count;
	if (most > PAST_HOSTS_MAX)
		return err_set(e, EINVAL, "secret %s was for too many hosts: give it another name",
			       fresh->name);
	fresh->past_hosts.list = calloc(most, sizeof(*fresh->past_hosts.list));
	if (!fresh->past_hosts.list)
		return err_set(e, ENOMEM, "no memory");
	leave_hosts(fresh, &old->past_hosts);
	leave_hosts(fresh, &old->hosts);
	for (size_t i = SECRET_PAST_MAX; i > 0; i--)
		secret_retire(fresh, &old->past[i - 1]);
	for (size_t i = 0; i < SECRET_PARTS; i++)
		secret_retire(fresh, &old->parts[i]);
	fresh->version = old->version + 1;
	secret_done(old);
	*old = *fresh;
	return 0;
}

int secrets_put(struct secrets *set, const json_t *entry, uint64_t now_ms, struct err *e)
{
	struct secret fresh = {0};
	int r = entry_read(&fresh, entry, now_ms, e);
	if (r == 0)
		r = check_hosts(set, &fresh, e);
	struct secret *old = r == 0 ? find_kind(set, fresh.name, fresh.stray) : NULL;
	struct secret *room = NULL;
	if (r == 0 && !old) {
		room = set->count < SECRETS_MAX ? malloc(sizeof(*room)) : NULL;
		if (!room)
			r = set->count < SECRETS_MAX
				    ? err_set(e, ENOMEM, "no memory")
				    : err_set(e, EINVAL, "more than %d secrets", SECRETS_MAX);
	}
	if (r == 0 && old)
		r = replace(old, &fresh, e);
	if (r < 0) {
		secret_done(&fresh);
		return r;
	}
	if (!old) {
		*room = fresh;
		set->list[set->count++] = room;
	}
	return recognise_granted(set, old ? old : room, e);
}

int secrets_renew(struct secrets *set, const json_t *update, struct err *e)
{
	static const char *const known[] = {"name", "value", "unavailable", NULL};
	const char *name;
	int r = doc_only(update, known, e);
	if (r < 0 || (r = doc_want_string(update, "name", &name, e)) < 0)
		return r;
	struct secret *s = find(set, name);
	if (!s || s->revoked)
		return err_set(e, ENOENT, "there is no secret %s", name);
	r = entry_read_values(s, update, e);
	if (r < 0)
		return r;
	s->version++;
	return recognise(set, s, e);
}

int secrets_revoke(struct secrets *set, const char *name)
{
	struct secret *s = find(set, name);
	if (!s || s->revoked)
		return -ENOENT;
	s->revoked = true;
	s->ended = ++set->revocations;
	s->version++;
	return 0;
}

struct secret *secrets_stop_guessed(struct secrets *set)
{
	unsigned index = 0;
	while (set->count && needles_guessed(set->values, &index)) {
		struct secret *s = secrets_at(set, index++);
		if (!s || s->revoked)
			continue;
		secrets_revoke(set, s->name);
		s->guessed = true;
		return s;
	}
	return NULL;
}

void secrets_keep_only(struct secrets *set, const json_t *keep)
{
	for (size_t i = 0; i < set->count; i++) {
		bool kept = false;
		for (size_t k = 0; k < json_array_size(keep); k++) {
			const json_t *name = json_object_get(json_array_get(keep, k), "name");
			kept = kept || str_eq(json_string_value(name), set->list[i]->name);
		}
		if (!kept)
			secrets_revoke(set, set->list[i]->name);
	}
}

int secrets_check(const struct secrets *set, const struct policy *p, struct err *e)
{
	auto_json json_t *document = policy_to_json(p);
	if (!document)
		return err_set(e, ENOMEM, "no memory");
	for (size_t i = 0; i < set->count; i++) {
		int r = set->list[i]->revoked ? 0 : secret_check(set->list[i], p, document, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* -- whom a request gets -- */

bool secret_has_host(const struct secret *s, const char *host)
{
	for (size_t i = 0; i < s->hosts.count; i++)
		if (policy_pattern_matches(s->hosts.list[i], host))
			return true;
	return false;
}

static bool in_scope(const struct secret *s, const struct policy_dest *dest)
{
	bool method = !s->methods.count || !dest->method, path = !s->paths.count || !dest->path;
	for (size_t i = 0; !method && i < s->methods.count; i++)
		method = str_eq(s->methods.list[i], dest->method);
	for (size_t i = 0; !path && i < s->paths.count; i++)
		path = policy_path_pattern_matches(s->paths.list[i], dest->path);
	return method && path;
}

struct secret *secrets_for(const struct secrets *set, const struct policy_dest *dest)
{
	struct secret *ended = NULL;
	bool living = false;
	/* A credential belongs to a name: none goes to an address. */
	if (dest->scheme != POLICY_HTTPS || dest->address.family)
		return NULL;
	for (size_t i = 0; i < set->count; i++) {
		struct secret *s = set->list[i];
		if (!secret_has_host(s, dest->host))
			continue;
		living = living || !s->revoked;
		if (!in_scope(s, dest))
			continue;
		if (!s->revoked)
			return s;
		if (!ended || s->ended > ended->ended)
			ended = s;
	}
	return living ? NULL : ended;
}

/* Whether it was for this host before it was put anew. */
static bool had_host(const struct secret *s, const char *host)
{
	for (size_t i = 0; i < s->past_hosts.count; i++)
		if (policy_pattern_matches(s->past_hosts.list[i], host))
			return true;
	return false;
}

bool secrets_concern(const struct secrets *set, const char *host)
{
	for (size_t i = 0; i < set->count; i++)
		if (secret_has_host(set->list[i], host) || had_host(set->list[i], host))
			return true;
	return false;
}

/* -- one secret -- */

unsigned secret_stopped(const struct secret *s, uint64_t now_ms, struct err *e)
{
	if (s->end_ms && now_ms >= s->end_ms)
		err_set(e, EACCES, "the grant of %s has expired", s->name);
	else if (s->weighed && s->charged >= s->bytes)
		err_set(e, EACCES, "the grant of %s is used up: it was for %llu bytes", s->name,
			(unsigned long long)s->bytes);
	else if (s->guessed)
		err_set(e, EACCES,
			"the grant of %s was stopped: its value was being guessed from what its "
			"hosts send back",
			s->name);
	else if (s->revoked)
		err_set(e, EACCES, "the grant of %s was revoked", s->name);
	else if (s->unavailable[0])
		err_set(e, EAGAIN, "the credential %s is not available: %s", s->name,
			s->unavailable);
	else
		return 0;
	return e->code == EAGAIN ? 503 : 403;
}

unsigned secret_unusable(const struct secret *s, uint64_t now_ms, struct err *e)
{
	unsigned status = secret_stopped(s, now_ms, e);
	if (status == 403 || !s->counted || s->used < s->uses)
		return status;
	err_set(e, EACCES, "the grant of %s is used up: it was for %llu requests", s->name,
		(unsigned long long)s->uses);
	return 403;
}

uint64_t secret_use(struct secret *s)
{
	return ++s->used;
}

bool secret_charge(struct secret *s, uint64_t bytes)
{
	if (s->weighed && bytes > s->bytes - s->charged) {
		s->charged = s->bytes; /* what is left is too little for what comes */
		return false;
	}
	s->charged += bytes;
	return true;
}

uint64_t secret_bytes(const struct secret *s)
{
	return s->charged;
}

uint64_t secrets_next_end_ms(const struct secrets *set, uint64_t now_ms)
{
	uint64_t next = 0;
	for (size_t i = 0; i < set->count; i++) {
		const struct secret *s = set->list[i];
		if (!s->revoked && s->end_ms > now_ms && (!next || s->end_ms < next))
			next = s->end_ms;
	}
	return next;
}

const char *secret_name(const struct secret *s)
{
	return s->name;
}

enum secret_kind secret_kind(const struct secret *s)
{
	return s->kind;
}

bool secret_is_canary(const struct secret *s)
{
	return s->canary;
}

bool secret_was_guessed(const struct secret *s)
{
	return s->guessed;
}

unsigned secret_version(const struct secret *s)
{
	return s->version;
}

const char *secret_value(const struct secret *s, enum secret_part part, size_t *ret_len)
{
	if (ret_len)
		*ret_len = s->parts[part].len;
	return s->parts[part].text;
}

const char *secret_placeholder_at(const struct secret *s, size_t i)
{
	return i < s->placeholders.count ? s->placeholders.list[i] : NULL;
}

const char *secret_recipe(const struct secret *s, const char *member)
{
	return json_string_value(json_object_get(s->recipe, member));
}

struct needles *secrets_values(struct secrets *set)
{
	return set->count ? set->values : NULL;
}

struct needles *secrets_placeholders(struct secrets *set)
{
	return set->count ? set->placeholders : NULL;
}

struct secret *secrets_at(const struct secrets *set, unsigned index)
{
	return index < set->count ? set->list[index] : NULL;
}

bool secret_is_credential_field(const char *name)
{
	static const char *const known[] = {
		"Authorization",
		"Proxy-Authorization",
		"Cookie",
		"Cookie2",
		"Api-Key",
		"ApiKey",
		"Circle-Token",
		"CF-Access-Client-Id",
		"CF-Access-Client-Secret",
		"DD-API-KEY",
		"DD-APPLICATION-KEY",
		"Job-Token",
		"Ocp-Apim-Subscription-Key",
		"Private-Token",
		"X-Access-Token",
		"X-Amz-Security-Token",
		"X-Api-Key",
		"X-Api-Token",
		"X-Auth-Email",
		"X-Auth-Key",
		"X-Auth-Token",
		"X-Figma-Token",
		"X-Functions-Key",
		"X-GitHub-Token",
		"X-Goog-Api-Key",
		"X-Goog-IAM-Authorization-Token",
		"X-Shopify-Access-Token",
		"X-Subscription-Token",
		"X-Vault-Token",
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (str_same_field(name, known[i]))
			return true;
	return false;
}
