/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec on a loop. Commands are short and few, so they are written whole or not at all: a full
 * socket means that QEMU has stopped reading, which is an error here, not something to queue for.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "vmm/qmp.h"

#define QMP_READ_SIZE 8192 /* bytes taken per wake */
#define QMP_READS_MAX 8    /* reads in qmp_client_read() */

static void client_lost(struct qmp_client *c, const struct err *why)
{
	uv_poll_stop(&c->poll);
	for (size_t i = 0; i < QMP_CALLS_MAX; i++) {
		if (c->calls[i].id == 0)
			continue;
		c->calls[i].id = 0;
		c->calls[i].reply(c->calls[i].user, NULL);
	}
	c->handlers->lost(c->user, why);
}

static void client_answer(struct qmp_client *c, const struct qmp_msg *m)
{
	for (size_t i = 0; i < QMP_CALLS_MAX && m->id != 0; i++) {
		if (c->calls[i].id != m->id)
			continue;
		c->calls[i].id = 0;
		c->calls[i].reply(c->calls[i].user, m);
		return;
	}
}

static void client_dispatch(struct qmp_client *c, const struct qmp_msg *m)
{
	switch (m->kind) {
	case QMP_GREETING:
		c->handlers->greeting(c->user);
		break;
	case QMP_EVENT:
		c->handlers->event(c->user, m->name, m->data);
		break;
	case QMP_RETURN:
	case QMP_ERROR:
		client_answer(c, m);
		break;
	}
}

/* A handler may close the client; then nothing more may be done with it. */
static void client_drain(struct qmp_client *c)
{
	struct err e = {0};
	struct qmp_msg m;
	int rc;

	while ((rc = qmp_next(&c->in, &m, &e)) == 0) {
		client_dispatch(c, &m);
		qmp_msg_done(&m);
		if (!uv_is_active((uv_handle_t *)&c->poll))
			return;
	}
	if (rc != -EAGAIN)
		client_lost(c, &e);
}

/* One read. True when it brought something and there may be more. */
static bool client_read(struct qmp_client *c)
{
	struct err e = {0};
	uint8_t chunk[QMP_READ_SIZE];
	ssize_t n = recv(c->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		err_set(&e, ECONNRESET, "QEMU closed its control connection");
		client_lost(c, &e);
		return false;
	}
	rc = qmp_feed(&c->in, chunk, (size_t)n);
	if (rc < 0) {
		err_set(&e, -rc, "QMP: a message longer than %d bytes", QMP_LINE_MAX);
		client_lost(c, &e);
		return false;
	}
	client_drain(c);
	return uv_is_active((uv_handle_t *)&c->poll);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	(void)status; /* an error shows in the read */
	(void)events;
	client_read(poll->data);
}

void qmp_client_read(struct qmp_client *c)
{
	if (!uv_is_active((uv_handle_t *)&c->poll))
		return;
	for (int i = 0; i < QMP_READS_MAX && client_read(c); i++)
		;
}

int qmp_client_open(struct qmp_client *c, uv_loop_t *loop, int fd,
		    const struct qmp_handlers *handlers, void *user)
{
	int rc = uv_poll_init(loop, &c->poll, fd);

	if (rc < 0)
		return rc;
	c->poll.data = c;
	c->fd = fd;
	c->handlers = handlers;
	c->user = user;
	c->last_id = 0;
	memset(c->calls, 0, sizeof(c->calls));
	qmp_decoder_init(&c->in);
	rc = uv_poll_start(&c->poll, UV_READABLE, on_readable);
	assert(rc == 0);
	return 0;
}

int qmp_client_call(struct qmp_client *c, const char *command, json_t *arguments, int pass_fd,
		    qmp_reply_fn reply, void *user)
{
	size_t slot = 0;
	int rc;

	while (slot < QMP_CALLS_MAX && c->calls[slot].id != 0)
		slot++;
	if (slot == QMP_CALLS_MAX)
		return -EBUSY;
	if (!uv_is_active((uv_handle_t *)&c->poll))
		return -EPIPE;
	auto_free char *line = qmp_encode(c->last_id + 1, command, arguments);
	if (!line)
		return -ENOMEM;
	rc = fd_send(c->fd, line, strlen(line), &pass_fd, pass_fd < 0 ? 0 : 1);
	if (rc < 0)
		return rc;
	c->calls[slot].id = ++c->last_id;
	c->calls[slot].reply = reply;
	c->calls[slot].user = user;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct qmp_client *c = handle->data;

	qmp_decoder_done(&c->in);
	c->handlers->closed(c->user);
}

/* The descriptor leaves the loop's poll set first: uv_close() of a poll handle does that at once.
 */
void qmp_client_close(struct qmp_client *c)
{
	uv_close((uv_handle_t *)&c->poll, on_closed);
	cleanup_fd(&c->fd);
	c->fd = -1;
}
