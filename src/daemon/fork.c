/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users do with frozen sandboxes: pause and resume, snapshot, fork. A fork freezes its parent
 * once, into a directory that only its children use; it goes when the last of them runs or has
 * failed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/freeze.h"
#include "daemon/grants.h"
#include "daemon/run.h"

/* -- pause and resume -- */

int sandbox_pause(struct sandbox *sb, sandbox_frozen_fn done, void *user, struct err *e)
{
	const struct freeze_request q = {
		.kind = FREEZE_PAUSE,
		.parent = sb->dir,
		.name = SANDBOX_PAUSED_NAME,
		.done = done,
		.user = user,
	};
	return freeze_start(sb, &q, e);
}

void sandbox_await(struct sandbox *sb, struct sandbox_starter *s)
{
	list_append(&sb->starters, &s->link);
}

void sandbox_await_not(struct sandbox_starter *s)
{
	list_remove(&s->link);
}

static int open_paused(struct sandbox *sb, struct err *e)
{
	struct node *n = sb->node;
	const char *fingerprint = NULL;
	int r = frozen_open(sb->dir, SANDBOX_PAUSED_NAME, &sb->source, e);
	if (r < 0)
		return err_prefix(e, "%s can't be resumed", sandbox_name(sb));
	r = doc_want_string(sb->source.extra, "fingerprint", &fingerprint, e);
	if (r == 0 && !vmm_fingerprint_fits(fingerprint, n->fingerprint))
		r = err_set(e, ENOTSUP,
			    "%s was paused with another version of QEMU or on another kind of "
			    "processor: it goes on only where those are as they were",
			    sandbox_name(sb));
	if (r < 0)
		frozen_done(&sb->source);
	return r;
}

static int record_resume(struct sandbox *sb, struct err *e)
{
	return audit_write(sb->node->audit, sb->id, "sandbox.resume",
			   json_pack("{s:o}", "secrets", grants_names(sb->spec.secrets)), e);
}

static int begin_resume(struct sandbox *sb, struct err *e)
{
	int r = open_paused(sb, e);
	if (r < 0)
		return r;
	sb->source_vetted = false;
	sb->thawed = true;
	memcpy(sb->old_token, sb->token, sizeof(sb->old_token));
	sandbox_starts(sb);
	r = record_resume(sb, e);
	if (r == 0)
		r = sandbox_begin(sb, e);
	grants_forget_values(sb->spec.secrets);
	if (r < 0 && sb->state == SANDBOX_PAUSED) {
		grants_end(sb);
		frozen_done(&sb->source);
		sandbox_lives_no_more(sb);
	} else if (r < 0) {
		sandbox_stop(sb, e); /* tells the starters */
		return 0;
	}
	return r;
}

void sandbox_rested(struct sandbox *sb)
{
	struct err e;
	if (sb->state != SANDBOX_PAUSED || sb->freeze || sb->place || sb->works)
		return;
	if (!sb->resume_wanted) {
		sandbox_rest_long(sb);
		return;
	}
	sb->resume_wanted = false;
	if (begin_resume(sb, &e) < 0)
		sandbox_tell_starters(sb, &e);
}

int sandbox_resume(struct sandbox *sb, json_t *secrets, bool without_secrets,
		   struct sandbox_starter *s, struct err *e)
{
	if (sb->node->closing)
		return err_set(e, ESHUTDOWN, "spaced is shutting down");
	if (sb->state != SANDBOX_PAUSED || sb->resume_wanted)
		return err_set(e, EBUSY, "%s is %s, not paused", sandbox_name(sb),
			       sb->resume_wanted ? "being resumed" : sandbox_state_name(sb->state));
	int r = grants_complete(sb->spec.secrets, secrets, without_secrets, e);
	if (r < 0) {
		grants_forget_values(sb->spec.secrets);
		return r;
	}
	list_append(&sb->starters, &s->link);
	if (sb->freeze || sb->place || sb->works) { /* not yet at rest */
		sb->resume_wanted = true;
		return 0;
	}
	r = begin_resume(sb, e);
	if (r < 0)
		list_remove(&s->link);
	return r;
}

/* -- what rests for long is compressed -- */

struct compression {
	uv_work_t work;
	struct sandbox *sb;
	struct frozen frozen;
	int code;
	struct err why;
};

static void run_compression(uv_work_t *w)
{
	struct compression *c = w->data;
	c->code = frozen_compress(&c->frozen, &c->why);
}

static void on_compressed(uv_work_t *w, int status)
{
	struct compression *c = w->data;
	struct sandbox *sb = c->sb;
	if (status == 0 && c->code < 0)
		log_warn("%s stays as it is: %s", sb->id, c->why.text);
	frozen_done(&c->frozen);
	free(c);
	sb->works--;
	if (sb->resume_wanted)
		sandbox_rested(sb);
	else
		sandbox_maybe_finish(sb);
}

static void on_long_rest(uv_timer_t *t)
{
	struct sandbox *sb = t->data;
	struct err e;
	struct compression *c = calloc(1, sizeof(*c));
	if (!c || frozen_open(sb->dir, SANDBOX_PAUSED_NAME, &c->frozen, &e) < 0) {
		free(c);
		return;
	}
	if (c->frozen.compressed) {
		frozen_done(&c->frozen);
		free(c);
		return;
	}
	c->sb = sb;
	c->work.data = c;
	sb->works++;
	uv_queue_work(sb->node->loop, &c->work, run_compression, on_compressed);
}

void sandbox_rest_long(struct sandbox *sb)
{
	uint64_t after_s = sb->node->config.compress_after_s;
	if (after_s)
		uv_timer_start(&sb->timer, on_long_rest, after_s * 1000, 0);
}

/* -- snapshot -- */

int sandbox_snapshot(struct sandbox *sb, const char *name, sandbox_frozen_fn done, void *user,
		     struct err *e)
{
	struct node *n = sb->node;
	struct frozen f;
	struct image img;
	struct err none;
	if (!str_is_name(name))
		return err_set(e, EINVAL,
			       "name: use 1 to 63 letters, digits, '.', '_' and '-', a letter or "
			       "digit first");
	if (image_open(n->paths.images, name, &img, &none) == 0) {
		image_done(&img);
		return err_set(e, EEXIST, "%s is the name of an image: choose another", name);
	}
	int r = frozen_open(n->paths.snapshots, name, &f, &none);
	if (r == 0)
		frozen_done(&f);
	if (r != -ENOENT)
		return err_set(e, EEXIST,
			       "there is a snapshot %s: choose another name, or 'space template rm "
			       "%s'",
			       name, name);
	const struct freeze_request q = {
		.kind = FREEZE_SNAPSHOT,
		.parent = n->paths.snapshots,
		.name = (char *)name,
		.done = done,
		.user = user,
	};
	r = freeze_start(sb, &q, e);
	if (r == 0)
		sandbox_record(sb, "sandbox.snapshot", json_pack("{s:s}", "name", name));
	return r;
}

/* -- fork -- */

struct fork;

struct child {
	struct sandbox_starter starter;
	struct fork *fork;
	char id[SANDBOX_ID_SIZE];
};

struct fork {
	struct node *node;
	struct sandbox_spec spec; /* what every child gets; names apart */
	struct sandbox_fork_request q;
	char parent[SANDBOX_ID_SIZE];
	char name[SANDBOX_ID_SIZE]; /* of the copy, among the places */
	uint64_t task_pid;
	char *task_user;
	struct sandbox_frozen report;
	struct err why;
	unsigned waiting;
	struct child children[SANDBOX_FORK_MAX];
	void (*done)(void *user, json_t *children, const struct sandbox_frozen *report,
		     const struct err *why);
	void *user;
};

static void fork_free(struct fork *f)
{
	sandbox_spec_done(&f->spec);
	json_decref(f->q.names);
	json_decref(f->q.secrets);
	free(f->task_user);
	free(f);
}

static void fork_end(struct fork *f)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < f->q.count; i++) {
		struct sandbox *sb =
			f->children[i].id[0] ? sandbox_find_id(f->node, f->children[i].id) : NULL;
		if (sb && sb->state == SANDBOX_RUNNING)
			json_array_append_new(list, sandbox_to_json(sb));
	}
	struct err e;
	if (frozen_remove(f->node->paths.places, f->name, &e) < 0)
		log_warn("%s", e.text);
	f->done(f->user, list, &f->report, f->why.code ? &f->why : NULL);
	fork_free(f);
}

static void on_child_started(void *user, const struct err *why)
{
	struct child *c = user;
	struct fork *f = c->fork;
	if (why && !f->why.code)
		f->why = *why;
	if (--f->waiting == 0)
		fork_end(f);
}

static int copy_spec(const struct sandbox_spec *from, struct sandbox_spec *to, struct err *e)
{
	*to = *from;
	to->name = NULL;
	to->image = strdup(from->image);
	to->command = json_deep_copy(from->command);
	to->secrets = json_deep_copy(from->secrets);
	to->strays = from->strays ? json_deep_copy(from->strays) : json_array();
	to->policy = NULL;
	to->detached = true;
	auto_json json_t *policy = from->policy ? policy_to_json(from->policy) : NULL;
	if (policy && !(to->policy = policy_from_json(policy, e)))
		return -EINVAL;
	return to->image && to->command && to->secrets && to->strays
		       ? 0
		       : err_set(e, ENOMEM, "no memory");
}

static int child_make(struct fork *f, unsigned i, struct err *e)
{
	struct node *n = f->node;
	struct child *c = &f->children[i];
	struct sandbox_spec spec;
	const char *name = json_string_value(json_array_get(f->q.names, i));
	int r = copy_spec(&f->spec, &spec, e);
	json_t *grants = r == 0 ? grants_inherit(f->spec.secrets, e) : NULL;
	if (r == 0 && !grants)
		r = -e->code;
	json_decref(spec.secrets);
	spec.secrets = grants;
	if (r == 0 && name && !(spec.name = strdup(name)))
		r = err_set(e, ENOMEM, "no memory");
	if (r == 0)
		r = sandbox_check(n, &spec, e);
	struct sandbox *sb = r == 0 ? sandbox_new(n, &spec) : NULL;
	if (!sb) {
		sandbox_spec_done(&spec);
		return r < 0 ? r : err_set(e, ENOMEM, "no memory");
	}
	strcpy(sb->parent, f->parent);
	sb->start = SANDBOX_FORK;
	sb->thawed = sb->source_vetted = true;
	sb->task_pid = f->task_pid;
	sb->task_user = f->task_user ? strdup(f->task_user) : NULL;
	r = frozen_open(n->paths.places, f->name, &sb->source, e);
	if (r == 0)
		r = sandbox_image_from_json(json_object_get(sb->source.extra, "image"), &sb->image,
					    e);
	if (r == 0)
		r = sandbox_prepare(sb, e);
	if (r < 0) {
		sandbox_drop(sb);
		return r;
	}
	snprintf(sb->old_token, sizeof(sb->old_token), "%s",
		 json_string_value(json_object_get(sb->source.extra, "token")));
	strcpy(c->id, sb->id);
	c->fork = f;
	c->starter = (struct sandbox_starter){.done = on_child_started, .user = c};
	sandbox_await(sb, &c->starter);
	f->waiting++;
	sandbox_starts(sb);
	r = sandbox_begin(sb, e);
	if (r < 0)
		sandbox_stop(sb, e); /* tells the starter */
	return 0;
}

static void on_frozen(void *user, const struct sandbox_frozen *report, const struct err *why)
{
	struct fork *f = user;
	struct err e;
	f->report = *report;
	if (why) {
		f->why = *why;
		f->done(f->user, json_array(), &f->report, &f->why);
		fork_free(f);
		return;
	}
	f->waiting = 1; /* us, so that none ends it before all are begun */
	for (unsigned i = 0; i < f->q.count && !f->why.code; i++)
		if (child_make(f, i, &e) < 0 && !f->why.code)
			f->why = e;
	if (--f->waiting == 0)
		fork_end(f);
}

static int check_names(struct node *n, const struct sandbox_fork_request *q, struct err *e)
{
	size_t i, k;
	json_t *name;
	if (q->count < 1 || q->count > SANDBOX_FORK_MAX)
		return err_set(e, EINVAL, "count must be 1 to %d", SANDBOX_FORK_MAX);
	if (q->names && json_array_size(q->names) != q->count)
		return err_set(e, EINVAL, "names must be as many as count");
	json_array_foreach(q->names, i, name)
	{
		const char *s = json_string_value(name);
		if (!s || !str_is_name(s))
			return err_set(e, EINVAL,
				       "names: use 1 to 63 letters, digits, '.', '_' and '-', a "
				       "letter or digit first");
		if (sandbox_find(n, s))
			return err_set(e, EEXIST, "a sandbox named %s exists: choose another name",
				       s);
		for (k = 0; k < i; k++)
			if (str_eq(s, json_string_value(json_array_get(q->names, k))))
				return err_set(e, EINVAL, "names: %s is there twice", s);
	}
	return 0;
}

int sandbox_fork(struct sandbox *sb, const struct sandbox_fork_request *q,
		 void (*done)(void *user, json_t *children, const struct sandbox_frozen *report,
			      const struct err *why),
		 void *user, struct err *e)
{
	int r = check_names(sb->node, q, e);
	if (r < 0)
		return r;
	struct fork *f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(e, ENOMEM, "no memory");
	f->node = sb->node;
	f->done = done;
	f->user = user;
	f->q = *q;
	json_incref(f->q.names);
	json_incref(f->q.secrets);
	strcpy(f->parent, sb->id);
	random_id(f->name, sizeof(f->name), 'f'); /* forks of one parent may overlap */
	f->task_pid = sb->task_pid;
	f->task_user = sb->task_user ? strdup(sb->task_user) : NULL;
	r = copy_spec(&sb->spec, &f->spec, e);
	if (r == 0 && q->grants)
		r = grants_complete(f->spec.secrets, q->secrets, false, e);
	else if (r == 0)
		r = grants_leave(&f->spec, e);
	const struct freeze_request freeze = {
		.kind = FREEZE_FORK,
		.parent = sb->node->paths.places,
		.name = f->name,
		.fleeting = true,
		.done = on_frozen,
		.user = f,
	};
	if (r == 0)
		r = freeze_start(sb, &freeze, e);
	if (r == 0)
		sandbox_record(sb, "sandbox.fork",
			       json_pack("{s:i, s:o}", "children", (int)q->count, "secrets",
					 grants_names(f->spec.secrets)));
	else
		fork_free(f);
	return r;
}
