/* SPDX-License-Identifier: Apache-2.0 */
/* Taking over a place from a spaced that has died: what was written down of it says who its processes
 * are, and they hold the rest. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/proc.h"
#include "base/str.h"
#include "daemon/place_state.h"

json_t *place_to_json(const struct place *p)
{
	json_t *j = json_pack("{s:s, s:i}", "id", p->id, "seat", p->seat);
	if (j && p->vmm) {
		struct vmm_identity who = vmm_identity(p->vmm);
		json_object_set_new(j, "vmm",
				    json_pack("{s:I, s:I}", "pid", (json_int_t)who.pid, "started",
					      (json_int_t)who.started));
	}
	if (j && p->gateway && !p->gateway_dropped) {
		struct gateway_identity who = gateway_identity(p->gateway);
		json_object_set_new(j, "gateway",
				    json_pack("{s:I, s:I}", "pid", (json_int_t)who.pid, "started",
					      (json_int_t)who.started));
	}
	struct stat st;
	if (j && p->scratch_fd >= 0 && fstat(p->scratch_fd, &st) == 0)
		json_object_set_new(j, "disk",
				    json_pack("{s:I, s:I}", "device", (json_int_t)st.st_dev,
					      "inode", (json_int_t)st.st_ino));
	if (j && p->root)
		json_object_set_new(j, "root", json_string(p->root));
	return j;
}

static int read_process(const json_t *record, const char *key, pid_t *pid, uint64_t *started,
			struct err *e)
{
	json_t *j = NULL;
	uint64_t number = 0;
	int r = doc_want_object(record, key, &j, e);
	if (r == 0)
		r = doc_want_uint(j, "pid", 1, INT32_MAX, &number, e);
	if (r == 0)
		r = doc_want_uint(j, "started", 0, INT64_MAX, started, e);
	*pid = (pid_t)number;
	return r;
}

static int take_recorded_seat(struct place *p, const json_t *record, struct err *e)
{
	uint64_t seat = 0;
	int r = doc_want_uint(record, "seat", 0, NODE_SANDBOXES_MAX - 1, &seat, e);
	if (r < 0)
		return r;
	if (p->node->seat_taken[seat])
		return err_set(e, EBUSY, "its seat is taken");
	p->node->seat_taken[seat] = true;
	p->seat = (int)seat;
	return 0;
}

static int adopt_vmm(struct place *p, const json_t *record, bool *ret_running, vmm_done_fn done,
		     struct err *e)
{
	struct vmm_identity who;
	int r = read_process(record, "vmm", &who.pid, &who.started, e);
	if (r < 0)
		return r;
	p->vmm = vmm_adopt(p->node->loop, p->id, p->vm_dir, place_uid(p, PLACE_VMM_UID), &who,
			   ret_running, done, &place_vmm_events, p, e);
	if (!p->vmm)
		return -(e->code ? e->code : EIO);
	p->slot.netns_fd = vmm_netns(p->vmm, e);
	if (p->slot.netns_fd < 0)
		return p->slot.netns_fd;
	json_t *disk = NULL;
	uint64_t device = 0, inode = 0;
	r = doc_want_object(record, "disk", &disk, e);
	if (r == 0)
		r = doc_want_uint(disk, "device", 0, INT64_MAX, &device, e);
	if (r == 0)
		r = doc_want_uint(disk, "inode", 0, INT64_MAX, &inode, e);
	if (r < 0)
		return r;
	p->scratch_fd = vmm_scratch(p->vmm, (dev_t)device, (ino_t)inode, e);
	return p->scratch_fd < 0 ? p->scratch_fd : 0;
}

static int adopt_gateway(struct place *p, const json_t *record, const char *sandbox, struct err *e)
{
	struct gateway_identity who;
	int r = read_process(record, "gateway", &who.pid, &who.started, e);
	if (r < 0)
		return r;
	p->gateway = gateway_adopt(p->node, sandbox, p->dir, place_uid(p, PLACE_GATEWAY_UID), &who,
				   &place_gateway_ops, p, e);
	return p->gateway ? 0 : -(e->code ? e->code : EIO);
}

static void end_recorded(const json_t *record, const char *key, uid_t uid)
{
	struct err e;
	pid_t pid;
	uint64_t started;
	if (read_process(record, key, &pid, &started, &e) < 0)
		return;
	auto_fd int pidfd = proc_find(pid, started, uid);
	if (pidfd >= 0)
		pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
}

void place_end_recorded(const struct node *n, const json_t *record)
{
	uint64_t seat;
	if (doc_want_uint(record, "seat", 0, NODE_SANDBOXES_MAX - 1, &seat, NULL) < 0)
		return;
	uid_t uid = n->uid_base + 2 * (uid_t)seat;
	end_recorded(record, "vmm", uid + PLACE_VMM_UID);
	end_recorded(record, "gateway", uid + PLACE_GATEWAY_UID);
}

struct place *place_adopt(struct node *n, const json_t *record, const char *sandbox, bool network,
			  bool *ret_running, vmm_done_fn done, const struct place_ops *ops,
			  void *user, struct err *e)
{
	const char *id = NULL, *root = NULL;
	int r = doc_want_string(record, "id", &id, e);
	if (r == 0 && (!str_is_name(id) || strlen(id) >= PLACE_ID_SIZE))
		r = err_set(e, EINVAL, "no id of a place");
	if (r == 0)
		r = doc_opt_string(record, "root", &root, e);
	struct place *p = r == 0 ? place_new(n, id, ops, user) : NULL;
	if (!p) {
		if (r == 0)
			err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	p->root = root ? strdup(root) : NULL;
	r = take_recorded_seat(p, record, e);
	if (r == 0)
		r = adopt_vmm(p, record, ret_running, done, e);
	if (r == 0 && network)
		r = adopt_gateway(p, record, sandbox, e);
	p->gateway_dropped = !network;
	if (r == 0)
		return p;
	place_discard(p);
	return NULL;
}
