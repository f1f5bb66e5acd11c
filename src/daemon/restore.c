/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an earlier spaced left. Its records say what there was, the processes what there is:
 *
 *	exited, failed              records, taken in
 *	paused                      taken in
 *	pausing, paused to the end  the processes are ended: paused
 *	resuming                    the processes are ended: paused, as before
 *	running, pausing            taken over with its processes; when they are gone: lost, or as it was
 *	                            paused last, if that is not yet removed
 *	all others                  lost: whoever had asked for it has gone with that spaced
 *
 * Last, processes and directories that belong to none of these are cleared.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/grants.h"
#include "daemon/place_state.h"
#include "daemon/sandbox_state.h"

#define ADOPT_TIMEOUT_MS (60u * 1000)

struct restoring {
	struct node *node;
	json_t *details; /* object: id → what its record says besides */
};

/* Takes in one record. */
static void take_in(void *user, const struct store_record *r)
{
	struct restoring *all = user;
	struct sandbox_spec spec = {
		.name = str_eq(r->name, r->id) ? NULL : strdup(r->name),
		.image = strdup(r->image),
		.cpus = r->cpus,
		.memory_mib = r->memory_mib,
		.keep = true,
		.command = doc_parse_json(r->command, strlen(r->command), NULL),
	};
	struct sandbox *sb = sandbox_new(all->node, &spec);
	json_t *detail = NULL;
	struct err e;
	if (!sb)
		abort();
	if (sandbox_from_record(sb, r, &detail, &e) < 0)
		log_error("record of %s: %s", r->id, e.text);
	else
		json_object_set_new(all->details, sb->id, detail);
	if (!sb->spec.command)
		sb->spec.command = json_array();
}

static bool paused_whole(const struct sandbox *sb, struct err *e)
{
	struct frozen f;
	if (frozen_open(sb->dir, SANDBOX_PAUSED_NAME, &f, e) < 0)
		return false;
	frozen_done(&f);
	return true;
}

static void on_adopt_timeout(uv_timer_t *t)
{
	struct err e;
	err_set(&e, ETIMEDOUT, "its monitor or gateway does not answer");
	sandbox_stop(t->data, &e);
}

static void on_goes_on(void *user, const struct err *why)
{
	struct sandbox *sb = user;
	if (sb->state != SANDBOX_BOOTING)
		return;
	if (why->code)
		sandbox_stop(sb, why);
	else
		sandbox_adopted(sb);
}

/* The one before may have stopped the guest, to copy it. */
static void on_adopted(void *user, const struct err *why)
{
	struct place *p = user;
	if (p->ops != &sandbox_place_ops)
		return; /* it was given up */
	struct sandbox *sb = p->user;
	struct err e = *why;
	if (sb->state != SANDBOX_BOOTING)
		return;
	if (!e.code && sb->adopted_running) {
		sandbox_adopted(sb);
		return;
	}
	int r = e.code ? 0 : vmm_resume(p->vmm, on_goes_on, sb);
	if (r < 0)
		err_sys(&e, -r, "its guest");
	if (e.code)
		sandbox_stop(sb, &e);
}

static bool adopt(struct sandbox *sb, const json_t *detail, struct err *e)
{
	json_t *record = NULL;
	if (!sb->spec.detached)
		return err_set(e, ECANCELED, "whoever was attached to it has gone"), false;
	if (!sb->task_pid)
		return err_set(e, ECANCELED, "its task had not begun"), false;
	if (doc_want_object(detail, "place", &record, e) < 0)
		return false;
	sb->place = place_adopt(sb->node, record, sb->id, sb->spec.network, &sb->adopted_running,
				on_adopted, &sandbox_place_ops, sb, e);
	if (!sb->place)
		return false;
	sb->state = SANDBOX_BOOTING;
	sb->gateway_ready = !sb->spec.network;
	sandbox_starts(sb);
	uv_timer_start(&sb->timer, on_adopt_timeout, ADOPT_TIMEOUT_MS, 0);
	place_watch_console(sb->place, sb->dir, NULL, sb, NULL);
	return true;
}

/* Ends what its record says are its processes; the sweep that follows finds only monitors. */
static void end_processes(const struct node *n, const json_t *detail)
{
	const json_t *record = json_object_get(detail, "place");
	if (record)
		place_end_recorded(n, record);
}

static void rest(struct sandbox *sb, const json_t *detail)
{
	end_processes(sb->node, detail);
	sb->state = SANDBOX_PAUSED;
	if (!sb->paused_ms)
		sb->paused_ms = sb->started_ms;
	sb->thawed = true;
}

/* Decides what becomes of it. False: it is lost. */
static bool revive(struct sandbox *sb, const json_t *detail, struct err *e)
{
	struct err none;
	bool whole;
	switch (sb->state) {
	case SANDBOX_EXITED:
	case SANDBOX_FAILED:
		return true;
	case SANDBOX_RUNNING:
		if (adopt(sb, detail, e))
			return true;
		whole = sb->spec.detached && paused_whole(sb, &none);
		break;
	case SANDBOX_PAUSING:
		whole = paused_whole(sb, &none);
		if (!whole && adopt(sb, detail, e))
			return true;
		break;
	case SANDBOX_BOOTING:
		whole = sb->paused_ms && paused_whole(sb, e);
		break;
	case SANDBOX_PAUSED:
		/* A damaged one is told of when it is resumed: nothing is thrown away here. */
		whole = true;
		break;
	case SANDBOX_CREATING:
	case SANDBOX_STOPPING:
	default:
		whole = false;
	}
	if (whole)
		rest(sb, detail);
	else
		end_processes(sb->node, detail);
	return whole;
}

/* Removes directories in parent that are none of ours any more. */
static int clear_directories(struct node *n, const char *parent, bool (*wanted)(struct node *n, const char *name),
			     struct err *e)
{
	DIR *d = opendir(parent);
	if (!d)
		return err_sys(e, errno, "%s", parent);
	for (struct dirent *entry; (entry = readdir(d));) {
		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..") ||
		    wanted(n, entry->d_name))
			continue;
		auto_free char *path = str_printf("%s/%s", parent, entry->d_name);
		if (path)
			dir_remove_all(path);
	}
	closedir(d);
	return 0;
}

static bool is_sandbox(struct node *n, const char *name)
{
	return sandbox_find_id(n, name);
}

static bool is_place(struct node *n, const char *name)
{
	list_for_each (it, &n->places)
		if (str_eq(list_entry(it, struct place, all)->id, name))
			return true;
	return false;
}

/* Monitors of no place of ours. A spaced that was killed had some waiting. */
static int sweep_processes(struct node *n, struct err *e)
{
	pid_t keep[NODE_SANDBOXES_MAX];
	size_t count = 0;
	list_for_each (it, &n->places) {
		struct place *p = list_entry(it, struct place, all);
		if (p->vmm && count < NODE_SANDBOXES_MAX)
			keep[count++] = vmm_identity(p->vmm).pid;
	}
	int r = vmm_sweep(n->paths.places, keep, count, e);
	if (r > 0)
		log_info("%d monitors of an earlier spaced were ended", r);
	return r < 0 ? r : 0;
}

static int restore_one(struct sandbox *sb, const json_t *detail, struct err *e)
{
	struct err why = {0};
	bool revived = revive(sb, detail, &why);
	int r = 0;
	if (!revived) {
		json_t *m = why.code ? json_pack("{s:s}", "reason", why.text) : NULL;
		r = audit_write(sb->node->audit, sb->id, "sandbox.lost", m, e);
	} else if (sb->state == SANDBOX_BOOTING) {
		r = audit_write(sb->node->audit, sb->id, "sandbox.adopt", NULL, e);
	}
	if (r < 0)
		return r;
	if (revived && dir_make_all(sb->dir, 0700) == 0)
		sb->log = tasklog_open(sb->dir, e);
	if (!sb->log) {
		sandbox_erase(sb);
		return 0;
	}
	if (sb->state < SANDBOX_STOPPING)
		grants_adopt(sb);
	if (sb->state >= SANDBOX_EXITED)
		tasklog_finish(sb->log);
	else
		frozen_sweep(sb->dir, NULL);
	if (sb->state == SANDBOX_PAUSED)
		sandbox_rest_long(sb);
	return sandbox_store(sb, e);
}

int sandbox_restore_all(struct node *n, struct err *e)
{
	auto_json json_t *details = json_object();
	struct restoring all = {n, details};
	int r = store_each(n->store, take_in, &all, e);
	if (r < 0)
		return r;
	list_for_each (it, &n->sandboxes) {
		struct sandbox *sb = list_entry(it, struct sandbox, link);
		r = restore_one(sb, json_object_get(details, sb->id), e);
		if (r < 0)
			return r;
	}
	r = sweep_processes(n, e);
	if (r == 0)
		r = clear_directories(n, n->paths.places, is_place, e);
	return r < 0 ? r : clear_directories(n, n->paths.sandboxes, is_sandbox, e);
}
