/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezing, in two halves: what memory was at first is copied while the guest runs; then, while it
 * stands still, the pages that it has changed since, and its devices' state.
 *
 * QEMU writes the state to an anonymous file of ours, never to the caller's: that one may come to
 * be used by others, and QEMU, which its guest may have taken over, could keep the descriptor.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/sparse.h"
#include "vmm/pages.h"
#include "vmm/qemu_state.h"

#define STATE_MAX        (16 << 20) /* bytes; a machine has some 25 KB */
#define STATE_FDSET      1000       /* none of those on the command line */
#define SAVE_DEADLINE_MS 10000

static int copy_state(int from, int to, struct err *e)
{
	auto_free uint8_t *data = NULL;
	struct stat st;
	int rc;

	if (fstat(from, &st) < 0)
		return err_sys(e, errno, "the machine's state");
	if (st.st_size == 0 || st.st_size > STATE_MAX)
		return err_set(e, EPROTO, "QEMU's state of the machine has %lld bytes",
			       (long long)st.st_size);
	data = malloc((size_t)st.st_size);
	if (!data)
		return err_sys(e, ENOMEM, "the machine's state");
	if (pread(from, data, (size_t)st.st_size, 0) != (ssize_t)st.st_size)
		return err_set(e, EPROTO, "QEMU's state of the machine can't be read");
	rc = fd_write_all(to, data, (size_t)st.st_size);
	return rc < 0 ? err_sys(e, -rc, "writing the machine's state") : 0;
}

/* In the worker. Of the monitor it uses what nobody changes while it works. */
static void work(uv_work_t *req)
{
	struct vmm *v = req->data;
	struct qemu_call *c = &v->call;
	int rc;

	if (c->kind == CALL_COPY_BASE) {
		rc = sparse_copy(v->base_fd, c->memory_fd);
		if (rc < 0)
			err_sys(&c->failure, -rc, "copying the machine's memory");
		return;
	}
	if (pages_capture(v->proc_fd, v->base_fd, v->ram_bytes, c->memory_fd, &c->failure) == 0)
		copy_state(c->state_copy_fd, c->state_fd, &c->failure);
}

static void on_worked(uv_work_t *req, int status)
{
	struct vmm *v = req->data;
	struct err why = v->call.failure;

	if (status < 0)
		err_sys(&why, -status, "freezing the machine");
	/* A copy made of a machine that ended meanwhile may be whole, or not. */
	if (v->phase == QEMU_GONE)
		why = v->why;
	if (v->phase == QEMU_GONE && why.code == 0)
		why.code = EIO;
	v->call.working = false;
	qemu_call_finish(v, &why);
	qemu_handle_closed(v);
}

static int start_work(struct vmm *v)
{
	int rc;

	v->work.data = v;
	rc = uv_queue_work(v->loop, &v->work, work, on_worked);
	if (rc < 0)
		return rc;
	v->call.working = true;
	v->open_handles++;
	return 0;
}

void qemu_work_abandon(struct vmm *v)
{
	uv_cancel((uv_req_t *)&v->work); /* fails when it is at work; then its end is waited for */
}

void qemu_save_pages(struct vmm *v)
{
	int rc;

	qemu_deadline(v, 0); /* what follows is not up to QEMU */
	rc = start_work(v);
	if (rc == 0)
		return;
	struct err why = {0};
	err_sys(&why, -rc, "freezing the machine");
	qemu_call_finish(v, &why);
}

int vmm_copy_base(struct vmm *v, int memory_fd, vmm_done_fn done, void *user)
{
	int rc;

	if (v->base_fd < 0)
		return -EINVAL;
	rc = qemu_call_begin(v, CALL_COPY_BASE, done, user, 0);
	if (rc < 0)
		return rc;
	v->call.memory_fd = memory_fd;
	rc = start_work(v);
	if (rc < 0)
		qemu_call_forget(v);
	return rc;
}

/* An anonymous file, and a descriptor of it that can only be written, as QEMU wants it. */
static int make_state_file(int *ret_writer)
{
	char path[32];
	auto_fd int fd = memfd_create("state", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret_writer = open(path, O_WRONLY | O_CLOEXEC);
	return *ret_writer < 0 ? -errno : take_fd(fd);
}

static int send_save(struct vmm *v, int writer)
{
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "/dev/fdset/%d", STATE_FDSET);
	auto_json json_t *set = json_pack("{s:i}", "fdset-id", STATE_FDSET);
	/* "live": it keeps the disks, and can go on. */
	auto_json json_t *what = json_pack("{s:s, s:b}", "filename", name, "live", 1);
	if (!set || !what)
		return -ENOMEM;
	rc = qemu_call_send(v, "add-fd", set, writer);
	if (rc == 0)
		rc = qemu_call_send(v, "xen-save-devices-state", what, -1);
	return rc < 0 ? rc : qemu_call_send(v, "remove-fd", set, -1);
}

int vmm_save(struct vmm *v, int memory_fd, int state_fd, vmm_done_fn done, void *user)
{
	struct stat st;
	int writer_raw = -1, rc;

	if (v->phase == QEMU_MACHINE && v->call.kind == CALL_NONE && !v->paused)
		return -EINVAL;
	if (v->base_fd < 0 || fstat(memory_fd, &st) < 0 || (uint64_t)st.st_size != v->ram_bytes)
		return -EINVAL;
	rc = qemu_call_begin(v, CALL_SAVE, done, user, SAVE_DEADLINE_MS);
	if (rc < 0)
		return rc;
	v->call.memory_fd = memory_fd;
	v->call.state_fd = state_fd;
	v->call.state_copy_fd = rc = make_state_file(&writer_raw);
	auto_fd int writer = writer_raw;
	if (rc >= 0)
		rc = send_save(v, writer);
	if (rc < 0)
		qemu_call_cancel(v, -rc);
	return rc < 0 ? rc : 0;
}
