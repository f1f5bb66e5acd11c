/* SPDX-License-Identifier: Apache-2.0 */
/* Writes blocks to a pipe in order and tells each one's writer when its last byte is in the pipe.
 */
#include "agent/input.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/process.h"

struct block {
	struct list link;
	uint8_t *data;
	size_t len, done;
	input_written_fn *written;
	void *user;
};

static void on_closed(uv_handle_t *h)
{
	struct input *in = h->data;
	in->released(in->user);
}

/* Takes the block out of the queue and tells its writer. */
static void block_end(struct input *in, struct block *b, int result)
{
	list_remove(&b->link);
	in->queued -= b->len;
	input_written_fn *written = b->written;
	void *user = b->user;
	free(b->data);
	free(b);
	written(user, result);
}

void input_close(struct input *in, int why)
{
	if (in->fd < 0)
		return;
	uv_close((uv_handle_t *)&in->poll, on_closed);
	close(in->fd);
	in->fd = -1;
	while (!list_empty(&in->blocks))
		block_end(in, list_entry(in->blocks.next, struct block, link), why);
}

/* Writes what the pipe takes of p[0 .. n). Returns the count, or -errno. */
static ssize_t write_some(int fd, const uint8_t *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t r = write(fd, p + done, n - done);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno == EAGAIN)
			break;
		if (r < 0)
			return -errno;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
	struct input *in = poll->data;
	(void)events;
	if (status < 0) {
		input_close(in, -EPIPE);
		return;
	}
	while (!list_empty(&in->blocks)) {
		struct block *b = list_entry(in->blocks.next, struct block, link);
		ssize_t r = write_some(in->fd, b->data + b->done, b->len - b->done);
		if (r < 0) {
			input_close(in, -EPIPE);
			return;
		}
		b->done += (size_t)r;
		if (b->done < b->len)
			return;
		block_end(in, b, 0);
	}
	uv_poll_stop(&in->poll);
	in->polling = false;
	if (in->finishing)
		input_close(in, -EPIPE);
}

void input_init(struct input *in, uv_loop_t *loop, int fd, void (*released)(void *user), void *user)
{
	*in = (struct input){.fd = fd, .released = released, .user = user};
	list_init(&in->blocks);
	if (fd < 0)
		return;
	uv_poll_init(loop, &in->poll, fd);
	in->poll.data = in;
}

static int enqueue(struct input *in, uint8_t *data, size_t n, size_t done,
		   input_written_fn *written, void *user)
{
	struct block *b = malloc(sizeof(*b));
	if (!b) {
		free(data);
		return -ENOMEM;
	}
	*b = (struct block){.data = data, .len = n, .done = done, .written = written, .user = user};
	list_append(&in->blocks, &b->link);
	in->queued += n;
	if (!in->polling)
		uv_poll_start(&in->poll, UV_WRITABLE, on_writable);
	in->polling = true;
	return 0;
}

int input_write(struct input *in, uint8_t *data, size_t n, input_written_fn *written, void *user)
{
	ssize_t done = 0;
	if (in->fd < 0 || in->finishing) {
		done = -EPIPE;
	} else if (in->queued + n > PROCESS_INPUT_MAX) {
		done = -ENOBUFS;
	} else if (list_empty(&in->blocks)) {
		done = write_some(in->fd, data, n);
		if (done < 0)
			input_close(in, -EPIPE);
	}
	if (done >= 0 && (size_t)done < n)
		return enqueue(in, data, n, (size_t)done, written, user);
	free(data);
	return done < 0 ? (int)done : 1;
}

void input_finish(struct input *in)
{
	in->finishing = true;
	if (list_empty(&in->blocks))
		input_close(in, -EPIPE);
}
