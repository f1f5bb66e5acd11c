/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A holder for each credential that is wanted: it has the value, and one look at the source at a
 * time. Everything that it has to say is said from its timer, so that nobody is called from within
 * a call of his own.
 *
 * A look that may bring a new refresh token is never given up: its holder stays until that is
 * stored.
 */
#include "daemon/broker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/oauth.h"
#include "daemon/secrets.h"
#include "daemon/source.h"

#define RENEW_PERCENT  80  /* of its life, after which a value is renewed */
#define JITTER_PERCENT 10  /* of its life, by which that is earlier for some */
#define RENEW_MIN_MS   500 /* between looks that succeed */
#define RETRY_MIN_MS   1000
#define RETRY_MAX_MS   (60 * 1000)
#define NEVER          UINT64_MAX

struct broker {
	struct node *node;
	struct source_threads *threads;
	struct list holders; /* those that may be found, and those that are gone */
};

struct holder {
	struct list link;
	struct broker *broker;
	char *name;
	bool stored;         /* in the node's store; else d is its definition */
	struct definition d; /* of the last look */
	bool gone;           /* removed, or something else now: why says so; it is found no more */
	struct list wants, tests;

	json_t *value;          /* NULL: none */
	uint64_t expires_ms;    /* wall clock, as the source said; 0: it did not */
	uint64_t good_until_ms; /* monotonic; NEVER */
	uint64_t next_ms;       /* when to look again: monotonic; NEVER */
	unsigned failures;      /* in a row */
	struct err why;         /* of the last of them; code 0: the last look was fine */
	bool stale;             /* value is not what the credential is now */

	struct source_fetch *fetch;
	uint64_t generation; /* of the credential that is looked at */
	struct err unbegun;  /* a look that failed before it began; code 0: none */
	uv_timer_t *timer;
	bool busy; /* is telling */
};

struct broker_want {
	struct list link;
	struct holder *holder;
	broker_told told;
	void *user;
	bool due;
};

struct test {
	struct list link;
	broker_tested tested;
	void *user;
};

static void on_timer(uv_timer_t *t);
static void on_fetched(void *user, struct source_value *v, const struct err *why);

/* -- holders -- */

static void on_timer_closed(uv_handle_t *h)
{
	free(h);
}

static void holder_free(struct holder *h)
{
	list_remove(&h->link);
	if (h->timer) {
		h->timer->data = NULL;
		uv_close((uv_handle_t *)h->timer, on_timer_closed);
	}
	definition_done(&h->d);
	json_decref(h->value);
	free(h->name);
	free(h);
}

static struct holder *holder_new(struct broker *b, const char *name, const struct definition *d)
{
	struct holder *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	list_init(&h->link);
	list_init(&h->wants);
	list_init(&h->tests);
	h->broker = b;
	h->stored = !d;
	h->name = strdup(name);
	h->timer = malloc(sizeof(*h->timer));
	if (d)
		h->d = (struct definition){.kind = d->kind,
					   .entry = json_deep_copy(d->entry),
					   .source = json_deep_copy(d->source)};
	if (!h->name || !h->timer || (d && (!h->d.entry || !h->d.source)) ||
	    uv_timer_init(b->node->loop, h->timer) < 0) {
		free(take_ptr(h->timer));
		holder_free(h);
		return NULL;
	}
	h->timer->data = h;
	list_append(&b->holders, &h->link);
	return h;
}

static bool same_source(const struct definition *a, const struct definition *b)
{
	return json_equal(a->source, b->source) &&
	       json_equal(json_object_get(a->entry, "inject"), json_object_get(b->entry, "inject"));
}

/* d NULL: of the store. */
static struct holder *holder_find(const struct broker *b, const char *name,
				  const struct definition *d)
{
	list_for_each (it, &b->holders) {
		struct holder *h = list_entry(it, struct holder, link);
		if (!h->gone && h->stored == !d && str_eq(h->name, name) &&
		    (!d || same_source(&h->d, d)))
			return h;
	}
	return NULL;
}

/* A look that may be given up, or that nobody waits for: see above. */
static bool may_stop(const struct holder *h)
{
	return h->d.kind != SOURCE_OAUTH2 || !oauth_rotates(json_object_get(h->d.source, "oauth2"));
}

static void stop_fetch(struct holder *h)
{
	if (!h->fetch || !may_stop(h))
		return;
	source_stop(h->fetch);
	h->fetch = NULL;
}

/* Nobody wants anything of it: it goes, at the latest when its look is at its end. */
static void holder_settle(struct holder *h)
{
	if (h->busy || !list_empty(&h->wants) || !list_empty(&h->tests))
		return;
	stop_fetch(h);
	json_decref(take_ptr(h->value));
	if (!h->fetch)
		holder_free(h);
}

static bool anything_due(const struct holder *h)
{
	list_for_each (it, &h->wants)
		if (list_entry(it, struct broker_want, link)->due)
			return true;
	return h->unbegun.code || (h->gone && !list_empty(&h->tests));
}

/* When the timer is to come next. */
static void holder_arm(struct holder *h)
{
	uint64_t now_ms = clock_mono_ms(), at_ms = NEVER;
	if (h->value && h->good_until_ms < at_ms)
		at_ms = h->good_until_ms;
	if (!h->fetch && !h->gone && h->next_ms < at_ms)
		at_ms = h->next_ms;
	if (anything_due(h))
		at_ms = now_ms;
	if (at_ms == NEVER)
		uv_timer_stop(h->timer);
	else
		uv_timer_start(h->timer, on_timer, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

/* -- telling -- */

static void all_due(struct holder *h)
{
	list_for_each (it, &h->wants)
		list_entry(it, struct broker_want, link)->due = true;
}

static struct broker_want *next_due(const struct holder *h)
{
	list_for_each (it, &h->wants) {
		struct broker_want *w = list_entry(it, struct broker_want, link);
		if (w->due)
			return w;
	}
	return NULL;
}

/* Whoever is told may go, or take others with him. */
static void tell_wants(struct holder *h)
{
	for (struct broker_want *w; (w = next_due(h));) {
		w->due = false;
		if (h->value && !h->gone)
			w->told(w->user, h->value, h->expires_ms, NULL);
		else if (h->why.code)
			w->told(w->user, NULL, 0, &h->why);
	}
}

static void tell_tests(struct holder *h, const struct err *why)
{
	struct err none = {0};
	while (!list_empty(&h->tests)) {
		struct test *t = list_entry(h->tests.next, struct test, link);
		list_remove(&t->link);
		t->tested(t->user, why ? 0 : h->expires_ms, why ? why : &none);
		free(t);
	}
}

/* -- a look and its end -- */

static uint64_t random_below(uint64_t n)
{
	uint64_t v;
	random_bytes(&v, sizeof(v));
	return n ? v % n : 0;
}

static void begin(struct holder *h)
{
	struct node *n = h->broker->node;
	struct err e = {0};
	auto_json json_t *values = NULL;
	const struct definition *d = &h->d;
	if (h->stored) {
		d = credentials_find(n, h->name, &e);
		h->generation = credentials_generation(n, h->name);
		values = d && credentials_flush(n, h->name, &e) == 0
				 ? credentials_values(n, h->name, &e)
				 : NULL;
	} else {
		values = json_object();
	}
	if (values && h->stored) {
		definition_done(&h->d);
		h->d = (struct definition){.kind = d->kind,
					   .entry = json_incref(d->entry),
					   .source = json_incref(d->source)};
	}
	if (values)
		h->fetch = source_start(h->broker->threads, &h->d, values, on_fetched, h);
	if (h->fetch)
		return;
	h->unbegun = e;
	if (!e.code)
		err_set(&h->unbegun, ENOMEM, "credential %s: no memory", h->name);
}

static void succeed(struct holder *h, struct source_value *v)
{
	uint64_t now_ms = clock_mono_ms(), wall_ms = clock_wall_ms();
	bool same = h->value && json_equal(h->value, v->value) && h->expires_ms == v->expires_ms;
	uint64_t life_ms = v->expires_ms               ? v->expires_ms - wall_ms
			   : h->d.kind == SOURCE_VALUE ? NEVER
						       : SOURCE_REREAD_MS;
	if (v->expires_ms && v->expires_ms <= wall_ms)
		life_ms = 0;
	if (h->failures)
		log_info("credential %s: its source is fine again", h->name);
	h->failures = 0;
	h->why.code = 0;
	h->stale = false;
	json_decref(h->value);
	h->value = take_ptr(v->value);
	h->expires_ms = v->expires_ms;
	h->good_until_ms = h->next_ms = NEVER;
	if (life_ms != NEVER) {
		uint64_t wait_ms = life_ms / 100 * RENEW_PERCENT -
				   random_below(life_ms / 100 * JITTER_PERCENT);
		h->good_until_ms = now_ms + life_ms;
		h->next_ms = now_ms + (wait_ms > RENEW_MIN_MS ? wait_ms : RENEW_MIN_MS);
	}
	if (!same)
		all_due(h);
	tell_tests(h, NULL);
}

static void fail(struct holder *h, const struct err *why)
{
	bool news = !str_eq(h->why.code ? h->why.text : NULL, why->text);
	bool hopeless = why->code == EACCES;
	uint64_t wait_ms = h->failures < 6 ? (uint64_t)RETRY_MIN_MS << h->failures : RETRY_MAX_MS;
	struct err e = *why;
	if (news)
		log_warn("%s", why->text);
	h->failures++;
	h->next_ms =
		hopeless ? NEVER : clock_mono_ms() + wait_ms / 4 * 3 + random_below(wait_ms / 2);
	h->why = *why;
	h->why.code = EAGAIN;
	if (h->stale)
		json_decref(take_ptr(h->value));
	if (!h->value && (news || h->stale))
		all_due(h);
	h->stale = false;
	tell_tests(h, &e);
}

/* Stores what was rotated, and judges what was given: only then is it used. */
static int judge(struct holder *h, struct source_value *v, const struct err *why, struct err *e)
{
	const json_t *token = json_object_get(v->rotated, "refreshToken");
	if (token && credentials_replace(h->broker->node, h->name, "refreshToken", token, e) < 0)
		return err_prefix(e, "credential %s: its new refresh token can't be stored",
				  h->name);
	if (!why)
		return definition_check_value(&h->d, v->value, e);
	*e = *why;
	return err_prefix(e, "credential %s", h->name);
}

/* Another look, or the first, unless it is known to be in vain. */
static void look(struct holder *h)
{
	if (!h->fetch && !h->gone && !h->unbegun.code)
		begin(h);
	holder_arm(h);
}

static void on_fetched(void *user, struct source_value *v, const struct err *why)
{
	struct holder *h = user;
	struct err e = {0};
	bool current =
		!h->stored || credentials_generation(h->broker->node, h->name) == h->generation;
	h->fetch = NULL;
	h->busy = true;
	if (h->gone || !current)
		; /* of what is no more */
	else if (judge(h, v, why, &e) < 0)
		fail(h, &e);
	else
		succeed(h, v);
	h->busy = false;
	if (h->gone || current)
		holder_arm(h);
	else
		look(h);
	holder_settle(h);
}

static void expire(struct holder *h)
{
	json_decref(take_ptr(h->value));
	if (!h->why.code)
		err_set(&h->why, EAGAIN, "credential %s has expired, and another is not there yet",
			h->name);
	all_due(h);
}

static void on_timer(uv_timer_t *t)
{
	struct holder *h = t->data;
	uint64_t now_ms = clock_mono_ms();
	h->busy = true;
	if (h->value && now_ms >= h->good_until_ms)
		expire(h);
	if (h->unbegun.code) {
		struct err e = h->unbegun;
		h->unbegun.code = 0;
		fail(h, &e);
	} else if (!h->fetch && !h->gone && now_ms >= h->next_ms) {
		begin(h);
	}
	if (h->gone)
		tell_tests(h, &h->why);
	tell_wants(h);
	h->busy = false;
	holder_arm(h);
	holder_settle(h);
}

/* -- the interface -- */

/* The one of that name and definition, made and asked for the first time where there is none. */
static struct holder *holder_for(struct broker *b, const char *name, const struct definition *d,
				 struct err *e)
{
	struct holder *h = holder_find(b, name, d);
	if (h)
		return h;
	h = holder_new(b, name, d);
	if (!h)
		err_set(e, ENOMEM, "no memory");
	return h;
}

static struct broker_want *want(struct broker *b, const char *name, const struct definition *d,
				broker_told told, void *user, struct err *e)
{
	struct broker_want *w = calloc(1, sizeof(*w));
	struct holder *h = w ? holder_for(b, name, d, e) : NULL;
	if (!h) {
		if (!w)
			err_set(e, ENOMEM, "no memory");
		free(w);
		return NULL;
	}
	*w = (struct broker_want){
		.holder = h, .told = told, .user = user, .due = h->value || h->why.code};
	list_append(&h->wants, &w->link);
	if (!h->value && !h->failures)
		look(h);
	else
		holder_arm(h);
	return w;
}

struct broker_want *broker_want(struct node *n, const char *name, broker_told told, void *user,
				struct err *e)
{
	struct err wrong = {0};
	/* One that can't be read is there: it is unavailable. */
	if (!credentials_find(n, name, &wrong) && wrong.code == ENOENT) {
		if (e)
			*e = wrong;
		return NULL;
	}
	return want(n->broker, name, NULL, told, user, e);
}

struct broker_want *broker_want_defined(struct node *n, const struct definition *d,
					broker_told told, void *user, struct err *e)
{
	if (d->kind != SOURCE_COMMAND && d->kind != SOURCE_SYSTEMD) {
		err_set(e, EINVAL, "credential %s: spaced does not ask the source %s of a policy",
			definition_name(d), definition_source(d));
		return NULL;
	}
	return want(n->broker, definition_name(d), d, told, user, e);
}

void broker_unwant(struct broker_want *w)
{
	if (!w)
		return;
	struct holder *h = w->holder;
	list_remove(&w->link);
	free(w);
	holder_settle(h);
}

int broker_test(struct node *n, const char *name, broker_tested tested, void *user, struct err *e)
{
	struct err wrong = {0};
	if (!credentials_find(n, name, &wrong)) {
		if (e)
			*e = wrong;
		return -wrong.code;
	}
	struct test *t = calloc(1, sizeof(*t));
	struct holder *h = t ? holder_for(n->broker, name, NULL, e) : NULL;
	if (!h) {
		free(t);
		return err_set(e, ENOMEM, "no memory");
	}
	*t = (struct test){.tested = tested, .user = user};
	list_append(&h->tests, &t->link);
	look(h);
	return 0;
}

void broker_show(const struct node *n, const char *name, uint64_t *ret_expires_ms,
		 const char **ret_problem)
{
	const struct holder *h = holder_find(n->broker, name, NULL);
	*ret_expires_ms = h && h->value ? h->expires_ms : 0;
	*ret_problem = h && h->why.code ? h->why.text : NULL;
}

static void let_go(struct holder *h, const struct err *why)
{
	stop_fetch(h);
	h->gone = true;
	h->why = *why;
	h->unbegun.code = 0;
	json_decref(take_ptr(h->value));
	all_due(h);
	holder_arm(h);
}

void broker_changed(struct node *n, const char *name, bool rescoped)
{
	struct holder *h = holder_find(n->broker, name, NULL);
	struct err e;
	if (!h)
		return;
	if (rescoped) {
		err_set(&e, ENOENT,
			"credential %s was set anew, for something else: grant it again", name);
		let_go(h, &e);
		return;
	}
	stop_fetch(h);
	h->stale = true;
	h->failures = 0;
	look(h);
}

void broker_removed(struct node *n, const char *name)
{
	struct holder *h = holder_find(n->broker, name, NULL);
	struct err e;
	if (!h)
		return;
	err_set(&e, ENOENT, "credential %s was removed from the node's store", name);
	let_go(h, &e);
}

struct broker *broker_new(struct node *n, struct err *e)
{
	struct broker *b = calloc(1, sizeof(*b));
	if (!b) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	b->node = n;
	list_init(&b->holders);
	b->threads = source_threads_new(n->loop, e);
	if (b->threads)
		return b;
	free(b);
	return NULL;
}

void broker_free(struct broker *b)
{
	if (!b)
		return;
	struct err ends;
	err_set(&ends, ECANCELED, "spaced ends");
	/* What must not be lost is stored from within. */
	source_threads_free(take_ptr(b->threads));
	list_for_each (it, &b->holders) {
		struct holder *h = list_entry(it, struct holder, link);
		h->fetch = NULL;
		while (!list_empty(&h->wants)) {
			struct broker_want *w = list_entry(h->wants.next, struct broker_want, link);
			list_remove(&w->link);
			free(w);
		}
		tell_tests(h, &ends);
		holder_free(h);
	}
	free(b);
}
