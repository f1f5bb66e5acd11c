/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/secrets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/broker.h"
#include "daemon/oauth.h"
#include "daemon/seal.h"
#include "daemon/waiting.h"

#define CREDENTIALS_MAX 1000
#define CANARY_BYTES    16

struct credential {
	struct list link;
	char *name, *text;   /* text: its definition, as it was given */
	struct definition d; /* valid unless wrong says why not */
	struct err wrong;
	uint8_t *sealed; /* its values; NULL: none */
	size_t sealed_len;
	uint64_t made_ms, generation;
	bool unwritten; /* it is newer than what is on disk */
};

struct credentials {
	struct node *node;
	struct list all; /* by name */
	size_t count;
	struct seal *seal; /* NULL: not needed yet */
	uint64_t generations;
};

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "no memory");
}

static void credential_free(struct credential *c)
{
	if (!c)
		return;
	list_remove(&c->link);
	definition_done(&c->d);
	free(c->sealed);
	free(c->text);
	free(c->name);
	free(c);
}

static struct credential *find(const struct node *n, const char *name)
{
	list_for_each (it, &n->credentials->all) {
		struct credential *c = list_entry(it, struct credential, link);
		if (str_eq(c->name, name))
			return c;
	}
	return NULL;
}

static struct credential *find_or_say(const struct node *n, const char *name, struct err *e)
{
	struct credential *c = find(n, name);
	if (!c)
		err_set(e, ENOENT,
			"no credential %.64s is in the node's store: 'space secret set' puts one "
			"there",
			name);
	return c;
}

/* -- the key -- */

static bool any_sealed(const struct credentials *all)
{
	list_for_each (it, &all->all)
		if (list_entry(it, struct credential, link)->sealed)
			return true;
	return false;
}

/* make: one may be made, if nothing was sealed with another that is gone now. */
static const struct seal *key_of(struct credentials *all, bool make, struct err *e)
{
	if (all->seal)
		return all->seal;
	auto_free char *path = str_printf("%s/secrets.key", all->node->paths.state);
	if (!path)
		no_memory(e);
	else
		all->seal = seal_open(path, make && !any_sealed(all), e);
	return all->seal;
}

/* values sealed; *ret stays NULL where there are none. */
static int seal_values(struct credentials *all, const char *name, const json_t *values,
		       uint8_t **ret, size_t *ret_len, struct err *e)
{
	*ret = NULL;
	*ret_len = 0;
	if (!json_object_size(values))
		return 0;
	const struct seal *key = key_of(all, true, e);
	if (!key)
		return e->code ? -e->code : -EIO;
	char *text = doc_to_text(values);
	if (!text)
		return no_memory(e);
	int r = seal_wrap(key, name, text, strlen(text), ret, ret_len, e);
	explicit_bzero(text, strlen(text));
	free(text);
	return r;
}

json_t *credentials_values(const struct node *n, const char *name, struct err *e)
{
	struct credential *c = find_or_say(n, name, e);
	if (!c)
		return NULL;
	if (!c->sealed)
		return json_object();
	const struct seal *key = key_of(n->credentials, false, e);
	char *text;
	size_t len;
	if (!key)
		err_prefix(e, "credential %s", name);
	if (!key || seal_unwrap(key, name, c->sealed, c->sealed_len, &text, &len, e) < 0)
		return NULL;
	json_t *values = doc_parse_json(text, len, NULL);
	explicit_bzero(text, len);
	free(text);
	if (!json_is_object(values)) {
		json_decref(values);
		err_set(e, EBADMSG, "what is stored of credential %s is damaged: set it anew",
			name);
		return NULL;
	}
	return values;
}

/* -- the store -- */

static void insert(struct credentials *all, struct credential *c)
{
	struct list *before = &all->all;
	list_for_each (it, &all->all) {
		if (strcmp(list_entry(it, struct credential, link)->name, c->name) > 0) {
			before = it;
			break;
		}
	}
	list_append(before, &c->link);
	all->count++;
}

static void load_definition(struct credential *c)
{
	auto_json json_t *j = doc_parse_json(c->text, strlen(c->text), &c->wrong);
	if (!j)
		err_prefix(&c->wrong, "the definition of credential %s can't be read", c->name);
	else if (definition_read(c->name, j, DEFINITION_IN_STORE, &c->d, &c->wrong) == 0)
		c->wrong.code = 0;
	if (c->wrong.code)
		log_warn("%s", c->wrong.text);
}

static struct credential *credential_new(struct credentials *all, const char *name,
					 const char *text)
{
	struct credential *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	list_init(&c->link);
	c->name = strdup(name);
	c->text = strdup(text);
	c->generation = ++all->generations;
	if (c->name && c->text)
		return c;
	credential_free(c);
	return NULL;
}

struct loading {
	struct credentials *all;
	bool failed;
};

static void load(void *user, const struct store_secret *r)
{
	struct loading *l = user;
	struct credential *c = credential_new(l->all, r->name, r->definition);
	uint8_t *sealed = r->sealed ? malloc(r->sealed_len) : NULL;
	if (!c || (r->sealed && !sealed)) {
		credential_free(c);
		free(sealed);
		l->failed = true;
		return;
	}
	if (sealed)
		memcpy(sealed, r->sealed, r->sealed_len);
	c->sealed = sealed;
	c->sealed_len = r->sealed_len;
	c->made_ms = r->made_ms;
	load_definition(c);
	insert(l->all, c);
}

struct credentials *credentials_open(struct node *n, struct err *e)
{
	struct credentials *all = calloc(1, sizeof(*all));
	if (!all) {
		no_memory(e);
		return NULL;
	}
	all->node = n;
	list_init(&all->all);
	struct loading l = {.all = all};
	int r = store_each_secret(n->store, load, &l, e);
	if (r == 0 && l.failed)
		r = no_memory(e);
	if (r == 0)
		return all;
	credentials_close(all);
	return NULL;
}

void credentials_close(struct credentials *all)
{
	if (!all)
		return;
	list_for_each (it, &all->all)
		credential_free(list_entry(it, struct credential, link));
	seal_close(all->seal);
	free(all);
}

const struct definition *credentials_find(const struct node *n, const char *name, struct err *e)
{
	struct credential *c = find_or_say(n, name, e);
	if (c && c->wrong.code && e)
		*e = c->wrong;
	return c && !c->wrong.code ? &c->d : NULL;
}

uint64_t credentials_generation(const struct node *n, const char *name)
{
	const struct credential *c = find(n, name);
	return c ? c->generation : 0;
}

static int write_down(struct node *n, struct credential *c, struct err *e)
{
	const struct store_secret r = {.name = c->name,
				       .definition = c->text,
				       .sealed = c->sealed,
				       .sealed_len = c->sealed_len,
				       .made_ms = c->made_ms};
	int done = store_put_secret(n->store, &r, e);
	c->unwritten = done < 0;
	return done;
}

int credentials_flush(struct node *n, const char *name, struct err *e)
{
	struct credential *c = find(n, name);
	return c && c->unwritten ? write_down(n, c, e) : 0;
}

int credentials_replace(struct node *n, const char *name, const char *member, const json_t *value,
			struct err *e)
{
	auto_json json_t *values = credentials_values(n, name, e);
	struct credential *c = find(n, name);
	uint8_t *sealed;
	size_t len;
	if (!values || !c)
		return e && e->code ? -e->code : -EIO;
	if (json_object_set(values, member, (json_t *)(uintptr_t)value) < 0)
		return no_memory(e);
	int r = seal_values(n->credentials, name, values, &sealed, &len, e);
	if (r < 0)
		return r;
	free(c->sealed);
	c->sealed = sealed;
	c->sealed_len = len;
	return write_down(n, c, e);
}

/* -- what is set -- */

/* What only pretends to be a credential needs no value of anybody's. */
static json_t *canary_values(const struct definition *d)
{
	uint8_t bytes[CANARY_BYTES];
	char hex[2 * CANARY_BYTES + 1];
	random_bytes(bytes, sizeof(bytes));
	hex_encode(bytes, sizeof(bytes), hex);
	return json_pack(
		"{s:o}", "value",
		json_sprintf(str_eq(definition_inject(d), "basic") ? "canary:%s" : "canary%s",
			     hex));
}

static int check_given(const struct definition *d, const json_t *values, struct err *e)
{
	static const char *const one[] = {"value", NULL};
	static const char *const aws[] = {"accessKeyId", "secretAccessKey", "sessionToken", NULL};
	static const char *const pem[] = {"certificate", "key", NULL};
	const char *inject = definition_inject(d);
	const char *const *known = str_eq(inject, "sigv4")         ? aws
				   : str_eq(inject, "certificate") ? pem
								   : one;
	int r = doc_only(values, known, e);
	for (size_t i = 0; r == 0 && known[i] && known[i] != aws[2]; i++)
		if (!json_object_get(values, known[i]))
			r = err_set(e, EINVAL, "%s is missing", known[i]);
	if (r < 0)
		return err_prefix(e, "credential %s: values", definition_name(d));
	return definition_check_value(d, known == one ? json_object_get(values, "value") : values,
				      e);
}

/* Whether the values are those that the source needs. *values may be replaced. */
static int check_values(const struct definition *d, json_t **values, struct err *e)
{
	static const char *const none[] = {NULL};
	const char *inject = definition_inject(d);
	bool simple = !str_eq(inject, "sigv4") && !str_eq(inject, "certificate");
	int r;
	if (d->kind == SOURCE_VALUE && definition_is_canary(d) && simple &&
	    !json_object_size(*values)) {
		json_decref(*values);
		*values = canary_values(d);
		return *values ? 0 : no_memory(e);
	}
	if (d->kind == SOURCE_VALUE)
		return check_given(d, *values, e);
	if (d->kind == SOURCE_OAUTH2)
		r = oauth_check_values(json_object_get(d->source, "oauth2"), *values, e);
	else
		r = doc_only(*values, none, e);
	return r < 0 ? err_prefix(e, "credential %s: values", definition_name(d)) : 0;
}

/* The body of a PUT, judged. */
struct setting {
	struct definition d;
	char *text;
	json_t *values;
};

static void setting_done(struct setting *s)
{
	definition_done(&s->d);
	free(s->text);
	json_decref(s->values);
}

static int setting_read(const char *name, const char *body, size_t len, struct setting *ret,
			struct err *e)
{
	static const char *const known[] = {"definition", "values", NULL};
	/* The parser's own words would quote what it read. */
	auto_json json_t *j = doc_parse_json(body, len, NULL);
	json_t *definition = NULL, *values = NULL;
	if (!json_is_object(j))
		return err_set(e, EINVAL, "credential %.64s: the request is no JSON object", name);
	int r = doc_only(j, known, e);
	if (r == 0)
		r = doc_want_object(j, "definition", &definition, e);
	if (r == 0)
		r = doc_opt_object(j, "values", &values, e);
	if (r < 0)
		return err_prefix(e, "credential %.64s", name);
	r = definition_read(name, definition, DEFINITION_IN_STORE, &ret->d, e);
	if (r < 0)
		return r;
	ret->text = doc_to_text(definition);
	ret->values = values ? json_incref(values) : json_object();
	return ret->text && ret->values ? check_values(&ret->d, &ret->values, e) : no_memory(e);
}

static int audit(struct node *n, const char *kind, const struct definition *d, const char *name,
		 struct err *e)
{
	json_t *what = d ? json_pack("{s:s, s:O, s:s, s:s}", "name", name, "hosts",
				     json_object_get(d->entry, "hosts"), "inject",
				     definition_inject(d), "source", definition_source(d))
			 : json_pack("{s:s}", "name", name);
	return what ? audit_write(n->audit, NULL, kind, what, e) : no_memory(e);
}

/* Takes s's members over. *ret_rescoped: it was there, and made other grants. */
static int set(struct node *n, const char *name, struct setting *s, bool *ret_there,
	       bool *ret_rescoped, struct err *e)
{
	struct credentials *all = n->credentials;
	struct credential *old = find(n, name), *c;
	if (!old && all->count >= CREDENTIALS_MAX)
		return err_set(e, ENOSPC, "the node's store has %d credentials already",
			       CREDENTIALS_MAX);
	c = credential_new(all, name, s->text);
	if (!c)
		return no_memory(e);
	c->made_ms = clock_wall_ms();
	int r = seal_values(all, name, s->values, &c->sealed, &c->sealed_len, e);
	if (r == 0)
		r = audit(n, "credential.set", &s->d, name, e);
	if (r == 0)
		r = write_down(n, c, e);
	if (r < 0) {
		credential_free(c);
		return r;
	}
	c->d = s->d;
	s->d = (struct definition){0};
	*ret_there = old;
	*ret_rescoped = old && (old->wrong.code || !definition_same_grant(&old->d, &c->d));
	if (old) {
		all->count--;
		credential_free(old);
	}
	insert(all, c);
	return 0;
}

int credentials_set(struct node *n, const char *name, const char *body, size_t len, bool *ret_there,
		    struct err *e)
{
	struct setting s = {0};
	bool rescoped = false;
	int r = setting_read(name, body, len, &s, e);
	if (r == 0) {
		r = set(n, name, &s, ret_there, &rescoped, e);
		if (r < 0)
			err_prefix(e, "credential %s", name);
	}
	setting_done(&s);
	if (r == 0)
		broker_changed(n, name, rescoped);
	return r;
}

int credentials_remove(struct node *n, const char *name, struct err *e)
{
	struct credential *c = find_or_say(n, name, e);
	if (!c)
		return -ENOENT;
	int r = audit(n, "credential.remove", NULL, c->name, e);
	if (r == 0)
		r = store_remove_secret(n->store, c->name, e);
	if (r < 0)
		return r;
	broker_removed(n, c->name);
	n->credentials->count--;
	credential_free(c);
	return 0;
}

/* -- the API -- */

static json_t *time_json(uint64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];
	if (!wall_ms)
		return NULL;
	clock_rfc3339(wall_ms, text);
	return json_string(text);
}

static json_t *credential_json(const struct node *n, const struct credential *c)
{
	uint64_t expires_ms = 0;
	const char *problem = NULL;
	broker_show(n, c->name, &expires_ms, &problem);
	if (c->wrong.code)
		return json_pack("{s:s, s:o, s:s}", "name", c->name, "madeAt",
				 time_json(c->made_ms), "problem", c->wrong.text);
	return json_pack("{s:s, s:s, s:O, s:s, s:o*, s:o, s:o*, s:s*}", "name", c->name, "kind",
			 definition_inject(&c->d), "hosts", json_object_get(c->d.entry, "hosts"),
			 "source", definition_source(&c->d), "canary",
			 definition_is_canary(&c->d) ? json_true() : NULL, "madeAt",
			 time_json(c->made_ms), "expiresAt", time_json(expires_ms), "problem",
			 problem);
}

static void reply(struct http_exchange *x, unsigned status, json_t *j)
{
	auto_json json_t *owned = j;
	auto_free char *text = owned ? doc_to_text(owned) : NULL;
	if (text)
		http_exchange_reply(x, status, "application/json", text, strlen(text));
	else
		http_exchange_reply_error(x, 500, "no memory");
}

static void reply_failure(struct http_exchange *x, const struct err *e)
{
	unsigned status = e->code == EINVAL ? 400 : e->code == ENOENT ? 404 : 500;
	http_exchange_reply_error(x, e->code == ENOSPC ? 507 : status, "%s", e->text);
}

void credentials_list(struct node *n, struct http_exchange *x)
{
	json_t *list = json_array();
	list_for_each (it, &n->credentials->all)
		json_array_append_new(list,
				      credential_json(n, list_entry(it, struct credential, link)));
	reply(x, 200, list);
}

void credentials_show(struct node *n, const char *name, struct http_exchange *x)
{
	struct err e = {0};
	const struct credential *c = find_or_say(n, name, &e);
	if (!c) {
		reply_failure(x, &e);
		return;
	}
	json_t *j = credential_json(n, c);
	json_t *definition = doc_parse_json(c->text, strlen(c->text), NULL);
	if (j && definition) /* one that can't be read is its problem */
		json_object_set(j, "definition", definition);
	json_decref(definition);
	reply(x, 200, j);
}

static void reply_set(struct node *n, const char *name, bool replaced, struct http_exchange *x)
{
	json_t *j = credential_json(n, find(n, name));
	if (replaced)
		json_object_set_new(j, "replaced", json_true());
	reply(x, replaced ? 200 : 201, j);
}

void credentials_put(struct node *n, const char *name, struct http_exchange *x, const char *body,
		     size_t len)
{
	struct err e = {0};
	bool there = false;
	int r = credentials_set(n, name, body, len, &there, &e);
	if (r < 0)
		reply_failure(x, &e);
	else
		reply_set(n, name, there, x);
}

void credentials_delete(struct node *n, const char *name, struct http_exchange *x)
{
	struct err e = {0};
	if (credentials_remove(n, name, &e) < 0)
		reply_failure(x, &e);
	else
		http_exchange_reply(x, 204, NULL, NULL, 0);
}

/* A test waits here for its source. */
struct trial {
	struct http_exchange *x; /* NULL: the client did not wait */
};

static void on_tested(void *user, uint64_t expires_ms, const struct err *why)
{
	struct trial *t = user;
	if (t->x && why->code)
		reply(t->x, 200, json_pack("{s:b, s:s}", "ok", 0, "problem", why->text));
	else if (t->x)
		reply(t->x, 200,
		      json_pack("{s:b, s:o*}", "ok", 1, "expiresAt", time_json(expires_ms)));
	free(t);
}

static void on_tester_gone(void *user)
{
	struct trial *t = user;
	t->x = NULL;
}

static const struct http_exchange_ops trial_ops = WAITING_OPS(on_tester_gone);

void credentials_test(struct node *n, const char *name, struct http_exchange *x)
{
	struct err e = {0};
	struct trial *t = calloc(1, sizeof(*t));
	if (!t || broker_test(n, name, on_tested, t, &e) < 0) {
		free(t);
		if (!e.code)
			no_memory(&e);
		reply_failure(x, &e);
		return;
	}
	t->x = x;
	http_exchange_on(x, &trial_ops, t);
}
