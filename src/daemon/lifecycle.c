/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/lifecycle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/template.h"
#include "daemon/waiting.h"

#define CPUS_DEFAULT       1
#define MEMORY_DEFAULT_MIB 512

unsigned api_status(int code)
{
	switch (code) {
	case EINVAL:
		return 400;
	case ENOENT:
		return 404;
	case EEXIST:
	case EBUSY:
	case ENOTSUP:
		return 409;
	case EAGAIN:
		return 429;
	case ENOSPC:
		return 507;
	default:
		return 500;
	}
}

/* Somebody who waits for an answer, and may leave before it is there. */
struct waiting {
	struct node *node;
	struct http_exchange *x; /* NULL: left */
	char *id;                /* of the sandbox; NULL: it is not about one */
	char *name;              /* of what is made */
	struct sandbox_starter starter;
	struct template_waiter template_waiter;
	unsigned cpus;
	uint64_t memory_mib;
};

static void waiting_free(struct waiting *w)
{
	free(w->id);
	free(w->name);
	free(w);
}

static void on_client_gone(void *user)
{
	struct waiting *w = user;
	w->x = NULL;
}

static const struct http_exchange_ops waiting_ops = WAITING_OPS(on_client_gone);

static struct waiting *waiting_new(struct node *n, struct http_exchange *x, const char *id,
				   const char *name)
{
	struct waiting *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->node = n;
	w->x = x;
	w->id = id ? strdup(id) : NULL;
	w->name = name ? strdup(name) : NULL;
	if ((id && !w->id) || (name && !w->name)) {
		waiting_free(w);
		return NULL;
	}
	http_exchange_on(x, &waiting_ops, w);
	return w;
}

static void reply_error(struct http_exchange *x, const struct err *e)
{
	http_exchange_reply_error(x, api_status(e->code), "%s", e->text);
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

/* Answers who still waits, and forgets him. j is taken over. */
static void answer(struct waiting *w, const struct err *why, unsigned status, json_t *j)
{
	struct http_exchange *x = w->x;
	waiting_free(w);
	if (!x)
		json_decref(j);
	else if (why) {
		json_decref(j);
		reply_error(x, why);
	} else {
		reply(x, status, j);
	}
}

/* The call could not even begin. */
static void refuse(struct waiting *w, struct http_exchange *x, const struct err *e)
{
	waiting_free(w);
	reply_error(x, e);
}

/* An object with those members, or none when there is no body. */
static json_t *parse(const char *body, size_t n, const char *const *known, struct err *e)
{
	json_t *j = n ? doc_parse_json(body, n, e) : json_object();
	if (j && !json_is_object(j))
		err_set(e, EINVAL, "the request must be an object");
	else if (j && doc_only(j, known, e) == 0)
		return j;
	json_decref(j);
	e->code = EINVAL;
	return NULL;
}

/* -- pause, resume, snapshot -- */

static void on_paused(void *user, const struct sandbox_frozen *report, const struct err *why)
{
	struct waiting *w = user;
	struct sandbox *sb = sandbox_find_id(w->node, w->id);
	json_t *j = json_pack("{s:s, s:s, s:I, s:I}", "sandboxID", w->id, "name",
			      sb ? sandbox_name(sb) : w->id, "stoppedMs",
			      (json_int_t)report->stopped_ms, "sizeBytes",
			      (json_int_t)report->size_bytes);
	answer(w, why, 200, j);
}

void lifecycle_pause(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	static const char *const known[] = {NULL};
	struct err e;
	auto_json json_t *j = parse(body, n, known, &e);
	struct waiting *w = j ? waiting_new(sandbox_node(sb), x, sandbox_id(sb), NULL) : NULL;
	if (!j)
		reply_error(x, &e);
	else if (!w)
		http_exchange_reply_error(x, 500, "no memory");
	else if (sandbox_pause(sb, on_paused, w, &e) < 0)
		refuse(w, x, &e);
}

static void on_resumed(void *user, const struct err *why)
{
	struct waiting *w = user;
	struct sandbox *sb = sandbox_find_id(w->node, w->id);
	answer(w, why, 200, sb ? sandbox_to_json(sb) : NULL);
}

void lifecycle_resume(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	static const char *const known[] = {"secrets", "withoutSecrets", NULL};
	struct err e;
	json_t *secrets = NULL;
	bool without = false;
	auto_json json_t *j = parse(body, n, known, &e);
	int r = j ? doc_opt_array(j, "secrets", &secrets, &e) : -EINVAL;
	if (r == 0)
		r = doc_opt_bool(j, "withoutSecrets", &without, &e);
	if (r < 0) {
		reply_error(x, &e);
		return;
	}
	struct waiting *w = waiting_new(sandbox_node(sb), x, sandbox_id(sb), NULL);
	if (!w) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	w->starter = (struct sandbox_starter){.done = on_resumed, .user = w};
	if (sandbox_resume(sb, secrets, without, &w->starter, &e) < 0)
		refuse(w, x, &e);
}

static void on_snapshot(void *user, const struct sandbox_frozen *report, const struct err *why)
{
	struct waiting *w = user;
	json_t *j = json_pack("{s:s, s:I, s:I}", "name", w->name, "stoppedMs",
			      (json_int_t)report->stopped_ms, "sizeBytes",
			      (json_int_t)report->size_bytes);
	answer(w, why, 201, j);
}

void lifecycle_snapshot(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	static const char *const known[] = {"name", NULL};
	struct err e;
	const char *name = NULL;
	auto_json json_t *j = parse(body, n, known, &e);
	if (!j || doc_want_string(j, "name", &name, &e) < 0) {
		reply_error(x, &e);
		return;
	}
	struct waiting *w = waiting_new(sandbox_node(sb), x, sandbox_id(sb), name);
	if (!w)
		http_exchange_reply_error(x, 500, "no memory");
	else if (sandbox_snapshot(sb, name, on_snapshot, w, &e) < 0)
		refuse(w, x, &e);
}

/* -- fork -- */

static void on_forked(void *user, json_t *children, const struct sandbox_frozen *report,
		      const struct err *why)
{
	struct waiting *w = user;
	struct err e;
	if (why)
		e = *why;
	if (why && json_array_size(children))
		err_prefix(&e, "%zu children run, one more could not be started",
			   json_array_size(children));
	answer(w, why ? &e : NULL, 201,
	       json_pack("{s:I, s:o}", "stoppedMs", (json_int_t)report->stopped_ms, "sandboxes",
			 children));
}

static int parse_fork(const json_t *j, struct sandbox_fork_request *q, struct err *e)
{
	uint64_t count = 1;
	*q = (struct sandbox_fork_request){0};
	int r = doc_opt_uint(j, "count", 1, SANDBOX_FORK_MAX, &count, e);
	if (r == 0)
		r = doc_opt_array(j, "names", &q->names, e);
	if (r == 0)
		r = doc_opt_bool(j, "grants", &q->grants, e);
	if (r == 0)
		r = doc_opt_array(j, "secrets", &q->secrets, e);
	if (r < 0)
		return r;
	if (q->secrets && !q->grants)
		return err_set(e, EINVAL, "secrets are for children with grants");
	q->count = (unsigned)count;
	if (q->names && !json_object_get(j, "count"))
		q->count = (unsigned)json_array_size(q->names);
	return 0;
}

void lifecycle_fork(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n)
{
	static const char *const known[] = {"count", "names", "grants", "secrets", NULL};
	struct err e;
	struct sandbox_fork_request q;
	auto_json json_t *j = parse(body, n, known, &e);
	if (!j || parse_fork(j, &q, &e) < 0) {
		reply_error(x, &e);
		return;
	}
	struct waiting *w = waiting_new(sandbox_node(sb), x, sandbox_id(sb), NULL);
	if (!w)
		http_exchange_reply_error(x, 500, "no memory");
	else if (sandbox_fork(sb, &q, on_forked, w, &e) < 0)
		refuse(w, x, &e);
}

/* -- templates -- */

void lifecycle_templates(struct node *n, struct http_exchange *x)
{
	struct err e;
	json_t *list = template_list_json(n, &e);
	if (list)
		reply(x, 200, list);
	else
		reply_error(x, &e);
}

static void on_template(void *user, const struct err *why)
{
	struct waiting *w = user;
	struct err e;
	answer(w, why, 201, why ? NULL : template_to_json(w->node, w->name, &e));
}

static void build(struct waiting *w, struct http_exchange *x, const char *image)
{
	struct node *n = w->node;
	struct image img;
	struct frozen f;
	struct err e;
	int r = image_open(n->paths.images, image, &img, &e);
	if (r < 0) {
		refuse(w, x, &e);
		return;
	}
	w->template_waiter = (struct template_waiter){.done = on_template, .user = w};
	r = template_get(n, &img, w->cpus, w->memory_mib, &f, &w->template_waiter, &e);
	image_done(&img);
	if (r < 0) {
		refuse(w, x, &e);
	} else if (r == 1) {
		frozen_done(&f);
		json_t *j = template_to_json(n, w->name, &e);
		answer(w, NULL, 200, j);
	}
}

void lifecycle_build_template(struct node *n, struct http_exchange *x, const char *body, size_t len)
{
	static const char *const known[] = {"image", "cpus", "memoryMB", NULL};
	struct err e;
	const char *image = NULL;
	uint64_t cpus = CPUS_DEFAULT, memory = MEMORY_DEFAULT_MIB;
	char name[TEMPLATE_NAME_SIZE];
	auto_json json_t *j = parse(body, len, known, &e);
	int r = j ? doc_want_string(j, "image", &image, &e) : -EINVAL;
	if (r == 0)
		r = doc_opt_uint(j, "cpus", 1, VMM_CPUS_MAX, &cpus, &e);
	if (r == 0)
		r = doc_opt_uint(j, "memoryMB", VMM_RAM_MIN_MIB, VMM_RAM_MAX_MIB, &memory, &e);
	if (r == 0 && !str_is_name(image))
		r = err_set(&e, EINVAL, "image: no name of an image");
	if (r < 0) {
		reply_error(x, &e);
		return;
	}
	template_name(image, (unsigned)cpus, memory, name);
	struct waiting *w = waiting_new(n, x, NULL, name);
	if (!w) {
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	w->cpus = (unsigned)cpus;
	w->memory_mib = memory;
	build(w, x, image);
}

void lifecycle_remove_template(struct node *n, struct http_exchange *x, const char *name)
{
	struct err e;
	if (template_remove(n, name, &e) < 0)
		reply_error(x, &e);
	else
		http_exchange_reply(x, 204, NULL, NULL, 0);
}
