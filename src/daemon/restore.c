/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier spaced left: records of ended sandboxes are taken in, those whose processes died
 * with it are cleared up. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/sandbox_state.h"

/* Takes in one record of an earlier spaced. */
static void restore(void *user, const struct store_record *r)
{
	struct node *n = user;
	struct sandbox_spec spec = {
		.name = str_eq(r->name, r->id) ? NULL : strdup(r->name),
		.image = strdup(r->image),
		.cpus = r->cpus,
		.memory_mib = r->memory_mib,
		.keep = true,
		.command = doc_parse_json(r->command, strlen(r->command), NULL),
	};
	struct sandbox *sb = sandbox_new(n, &spec);
	if (!sb)
		abort();
	snprintf(sb->id, sizeof(sb->id), "%s", r->id);
	sb->state = str_eq(r->state, "exited")   ? SANDBOX_EXITED
		    : str_eq(r->state, "failed") ? SANDBOX_FAILED
						 : SANDBOX_RUNNING;
	sb->started_ms = r->started_ms;
	sb->ended_ms = r->ended_ms;
	sb->exit_code = r->exit_code;
	sb->reason = r->reason ? strdup(r->reason) : NULL;
	sb->dir = str_printf("%s/%s", n->paths.sandboxes, sb->id);
}

/* Removes directories that no record names. */
static int clear_directories(struct node *n, struct err *e)
{
	DIR *d = opendir(n->paths.sandboxes);
	if (!d)
		return err_sys(e, errno, "%s", n->paths.sandboxes);
	for (struct dirent *entry; (entry = readdir(d));) {
		if (entry->d_name[0] == '.' || sandbox_find_id(n, entry->d_name))
			continue;
		auto_free char *path = str_printf("%s/%s", n->paths.sandboxes, entry->d_name);
		if (path)
			dir_remove_all(path);
	}
	closedir(d);
	return 0;
}

int sandbox_restore_all(struct node *n, struct err *e)
{
	int r = store_each(n->store, restore, n, e);
	if (r < 0)
		return r;
	list_for_each (it, &n->sandboxes) {
		struct sandbox *sb = list_entry(it, struct sandbox, link);
		bool lost = sb->state == SANDBOX_RUNNING;
		/* Its processes died with the spaced that had started them. */
		if (lost)
			r = audit_write(n->audit, sb->id, "sandbox.lost", NULL, e);
		if (r < 0)
			return r;
		if (!lost && dir_make_all(sb->dir, 0700) == 0)
			sb->log = tasklog_open(sb->dir, e);
		if (sb->log)
			tasklog_finish(sb->log);
		else
			sandbox_erase(sb);
	}
	return clear_directories(n, e);
}
