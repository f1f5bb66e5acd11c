/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What could be left behind is held by a descriptor (slot, disk) or killed with its place; the
 * directory is one of a list that a new spaced clears.
 */
#include "daemon/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sparse.h"
#include "base/str.h"
#include "daemon/place_state.h"

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(take_fd(*fd));
}

static void drop_listeners(struct place *p)
{
	drop_fd(&p->slot.tcp_fd);
	drop_fd(&p->slot.dns_udp_fd);
	drop_fd(&p->slot.dns_tcp_fd);
}

static void on_timer_closed(uv_handle_t *h)
{
	struct place *p = h->data;
	free(p->dir);
	free(p->vm_dir);
	free(p->root);
	free(p);
}

void place_release(struct place *p)
{
	console_close(p->console);
	slot_close(&p->slot);
	drop_fd(&p->scratch_fd);
	if (p->seat >= 0)
		p->node->seat_taken[p->seat] = false;
	int r = p->dir ? dir_remove_all(p->dir) : 0;
	if (r < 0)
		log_error("can't remove %s: %s", p->dir, strerror(-r));
	list_remove(&p->link);
	list_remove(&p->all);
	uv_close((uv_handle_t *)&p->timer, on_timer_closed);
}

static void on_gone_timer(uv_timer_t *t)
{
	struct place *p = t->data;
	p->ops->gone(p->user);
}

static void maybe_gone(struct place *p)
{
	if (p->killed && !p->vmm && !p->gateway)
		uv_timer_start(&p->timer, on_gone_timer, 0, 0);
}

void place_kill(struct place *p)
{
	if (p->killed)
		return;
	p->killed = true;
	if (p->vmm)
		vmm_kill(p->vmm);
	if (p->gateway && !p->gateway_dropped)
		gateway_end(p->gateway);
	maybe_gone(p);
}

/* For a place that nobody wants. */
static void on_unwanted_lost(void *user, const struct err *why)
{
	(void)user;
	(void)why;
}

static void on_unwanted_gone(void *user)
{
	place_release(user);
}

static const struct place_ops unwanted_ops = {.lost = on_unwanted_lost, .gone = on_unwanted_gone};

void place_discard(struct place *p)
{
	p->ops = &unwanted_ops;
	p->user = p;
	place_kill(p);
}

void place_kill_all(struct node *n)
{
	list_for_each (it, &n->places) {
		struct place *p = list_entry(it, struct place, all);
		place_discard(p);
		if (p->dir)
			dir_remove_all(p->dir); /* nobody will come to release it */
	}
}

static void on_vmm_exited(void *user, const struct err *why)
{
	struct place *p = user;
	p->vmm = NULL;
	if (p->killed) {
		maybe_gone(p);
		return;
	}
	struct err e;
	err_set(&e, EIO, "the microVM ended: %s",
		why->code ? why->text : "it was switched off from inside");
	p->ops->lost(p->user, &e);
}

static void on_gateway_ready(void *user)
{
	struct place *p = user;
	if (p->ops->gateway_ready)
		p->ops->gateway_ready(p->user);
}

static void on_gateway_active(void *user)
{
	struct place *p = user;
	if (p->ops->active)
		p->ops->active(p->user);
}

static void on_gateway_recorded(void *user, const json_t *event)
{
	struct place *p = user;
	if (p->ops->recorded)
		p->ops->recorded(p->user, event);
}

static void on_gateway_exited(void *user, const struct err *why)
{
	struct place *p = user;
	p->gateway = NULL;
	if (p->killed)
		maybe_gone(p);
	else if (!p->gateway_dropped)
		p->ops->lost(p->user, why);
}

const struct vmm_events place_vmm_events = {.exited = on_vmm_exited};
const struct gateway_ops place_gateway_ops = {
	.ready = on_gateway_ready,
	.exited = on_gateway_exited,
	.active = on_gateway_active,
	.recorded = on_gateway_recorded,
};

uid_t place_uid(const struct place *p, unsigned which)
{
	return p->node->uid_base + 2 * (uid_t)p->seat + which;
}

static int take_seat(struct place *p, struct err *e)
{
	for (int i = 0; i < NODE_SANDBOXES_MAX; i++) {
		if (p->node->seat_taken[i])
			continue;
		p->node->seat_taken[i] = true;
		p->seat = i;
		return 0;
	}
	return err_set(e, EAGAIN, "%d sandboxes are alive, the most that this node holds: end some",
		       NODE_SANDBOXES_MAX);
}

static int make_directories(struct place *p, struct err *e)
{
	int r = dir_make_all(p->dir, 0700);
	if (r == 0 && mkdir(p->vm_dir, 0711) < 0)
		r = -errno;
	if (r == 0 && chmod(p->vm_dir, 0711) < 0) /* whatever our umask is */
		r = -errno;
	return r < 0 ? err_sys(e, -r, "can't make %s", p->vm_dir) : 0;
}

static int start_processes(struct place *p, unsigned kind, struct err *e)
{
	struct node *n = p->node;
	p->scratch_fd = sparse_open_unnamed(n->paths.scratch);
	if (p->scratch_fd < 0)
		return err_sys(e, -p->scratch_fd, "can't make a disk in %s", n->paths.scratch);
	const struct vmm_config config = {
		.id = p->id,
		.dir = p->vm_dir,
		.scratch_fd = p->scratch_fd,
		.tap_fd = p->slot.tap_fd,
		.netns_fd = p->slot.netns_fd,
		.uid = place_uid(p, PLACE_VMM_UID),
		.boots = p->boots,
	};
	p->vmm = vmm_open(n->loop, &n->host, &config, &place_vmm_events, p, e);
	/* The monitor has its own: closing a tap for good takes tens of milliseconds, which are not
	 * to be ours. */
	drop_fd(&p->slot.tap_fd);
	if (!p->vmm)
		return -(e->code ? e->code : EIO);
	if (kind & PLACE_NO_GATEWAY) {
		place_drop_gateway(p);
		return 0;
	}
	p->gateway = gateway_open(n, p->id, p->dir, place_uid(p, PLACE_GATEWAY_UID),
				  &place_gateway_ops, p, e);
	return p->gateway ? 0 : -(e->code ? e->code : EIO);
}

struct place *place_new(struct node *n, const char *id, const struct place_ops *ops, void *user)
{
	struct place *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	*p = (struct place){
		.node = n,
		.seat = -1,
		.slot = {-1, -1, -1, -1, -1},
		.scratch_fd = -1,
		.ops = ops,
		.user = user,
	};
	if (id)
		strcpy(p->id, id);
	else
		random_id(p->id, sizeof(p->id), 'p');
	list_init(&p->link);
	list_append(&n->places, &p->all);
	uv_timer_init(n->loop, &p->timer);
	p->timer.data = p;
	p->dir = str_printf("%s/%s", n->paths.places, p->id);
	p->vm_dir = p->dir ? str_printf("%s/vm", p->dir) : NULL;
	if (p->vm_dir)
		return p;
	place_release(p);
	return NULL;
}

struct place *place_open(struct node *n, unsigned kind, const struct place_ops *ops, void *user,
			 struct err *e)
{
	struct place *p = place_new(n, NULL, ops, user);
	if (!p) {
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	p->boots = kind & PLACE_BOOTS;
	int r = take_seat(p, e);
	if (r == 0)
		r = make_directories(p, e);
	if (r == 0 && (r = slot_open(&p->slot, e)) < 0)
		err_prefix(e, "can't make a network slot");
	if (r == 0)
		r = start_processes(p, kind, e);
	if (r == 0)
		return p;
	place_discard(p);
	return NULL;
}

void place_hand_over(struct place *p, const struct place_ops *ops, void *user)
{
	p->ops = ops;
	p->user = user;
}

int place_configure(struct place *p, const char *sandbox, const json_t *policy, json_t *secrets,
		    struct err *e)
{
	int r = gateway_configure(p->gateway, sandbox, &p->slot, policy, secrets, e);
	/* Its copy is the gateway's now; ours goes. What stays names the secrets and their
	 * placeholders. */
	size_t i;
	json_t *secret;
	json_array_foreach(secrets, i, secret) json_object_del(secret, "value");
	drop_listeners(p);
	return r;
}

int place_keep_root(struct place *p, const char *root, struct err *e)
{
	char *path = str_printf("%s/root", p->dir);
	if (path && link(root, path) < 0) {
		free(path);
		if (errno != EXDEV)
			return err_sys(e, errno, "can't link %s", root);
		path = strdup(root);
	}
	free(p->root);
	p->root = path;
	return path ? 0 : err_set(e, ENOMEM, "no memory");
}

void place_drop_gateway(struct place *p)
{
	drop_listeners(p); /* so that the guest is refused at once, not left waiting */
	p->gateway_dropped = true;
	if (p->gateway)
		gateway_kill(p->gateway);
}

int place_watch_console(struct place *p, const char *log_dir, void (*ready)(void *user), void *user,
			struct err *e)
{
	int fd = vmm_console(p->vmm, e);
	if (fd < 0)
		return fd;
	p->console = console_open(p->node->loop, log_dir, fd, ready, user, e);
	return p->console ? 0 : -EIO;
}

const char *place_last_line(const struct place *p)
{
	return p && p->console ? console_last_line(p->console) : "";
}

struct stream *place_connect(struct place *p, uint16_t port, const struct stream_ops *ops,
			     void *user, struct err *e)
{
	int fd;
	int r = slot_connect(&p->slot, port, &fd);
	if (r < 0) {
		err_sys(e, -r, "can't reach port %u of the guest", port);
		return NULL;
	}
	return stream_adopt(p->node->loop, fd, ops, user, e);
}
