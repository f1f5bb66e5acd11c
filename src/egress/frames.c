/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads and payload part here and meet again: payload goes through the scan, which may hold some of
 * it, and each frame's head waits in a queue until its turn has come. Nothing changes in length, so
 * heads stay right. Payload is unmasked for the scan, and masked again behind it.
 */
#include "egress/frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define HEAD_MAX    14
#define CONTROL_MAX 125 /* bytes of payload of a control frame */
#define SLICE       4096

struct frame {
	uint8_t head[HEAD_MAX];
	uint8_t head_len;
	bool head_passed;
	uint64_t payload; /* bytes */
	uint64_t passed;  /* of them */
	uint8_t mask[4];  /* zeroes: none */
	uint8_t *control; /* the payload of a control frame, once it is whole */
};

struct frames {
	struct needles *needles;
	struct scan *scan;
	bool redact, strict;
	struct frame *queue; /* FRAMES_MAX, in a ring */
	size_t first, count;
	struct frame now; /* the one that comes; also in the queue once its head is whole */
	uint64_t left;    /* payload bytes of it that are still to come */
	bool in_message;  /* a frame that continues it must follow */
	bool unread;      /* its message bypasses the scan */
	uint8_t control[CONTROL_MAX];
	/* where clear bytes go, while there is a call */
	scan_sink sink;
	void *user;
};

static struct frame *frame_at(const struct frames *f, size_t i)
{
	return &f->queue[(f->first + i) % FRAMES_MAX];
}

static bool is_control(const struct frame *frame)
{
	return frame->head[0] & 0x08;
}

static bool is_final(const struct frame *frame)
{
	return frame->head[0] & 0x80;
}

static void frame_drop_first(struct frames *f)
{
	struct frame *frame = frame_at(f, 0);
	if (frame->control)
		explicit_bzero(frame->control, (size_t)frame->payload);
	free(take_ptr(frame->control));
	f->first = (f->first + 1) % FRAMES_MAX;
	f->count--;
}

struct frames *frames_new(struct needles *n, bool redact, bool strict)
{
	struct frames *f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->needles = needles_get(n);
	f->redact = redact;
	f->strict = strict;
	f->scan = scan_new(n, redact);
	f->queue = calloc(FRAMES_MAX, sizeof(*f->queue));
	if (f->scan && f->queue)
		return f;
	frames_free(f);
	return NULL;
}

void frames_free(struct frames *f)
{
	if (!f)
		return;
	while (f->count)
		frame_drop_first(f);
	explicit_bzero(f->control, sizeof(f->control));
	scan_free(f->scan);
	needles_put(f->needles);
	free(f->queue);
	free(f);
}

int frames_change(struct frames *f, struct needles *n)
{
	int r = scan_change(f->scan, n);
	if (r == 0 && n != f->needles) {
		needles_put(f->needles);
		f->needles = needles_get(n);
	}
	return r;
}

/* -- out -- */

static void mask_bytes(const struct frame *frame, uint64_t at, const uint8_t *p, size_t n,
		       uint8_t *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = p[i] ^ frame->mask[(at + i) % 4];
}

static void pass_masked(struct frames *f, struct frame *frame, const uint8_t *p, size_t n)
{
	uint8_t masked[SLICE];
	while (n) {
		size_t part = n < sizeof(masked) ? n : sizeof(masked);
		mask_bytes(frame, frame->passed, p, part, masked);
		frame->passed += part;
		f->sink(f->user, masked, part);
		p += part;
		n -= part;
	}
}

/* Passes what has its turn: the head of the first frame, and more while frames have passed whole.
 */
static void pass_heads(struct frames *f)
{
	while (f->count) {
		struct frame *frame = frame_at(f, 0);
		if (is_control(frame) && frame->payload && !frame->control)
			return;
		if (!frame->head_passed)
			f->sink(f->user, frame->head, frame->head_len);
		frame->head_passed = true;
		if (is_control(frame) && frame->payload)
			pass_masked(f, frame, frame->control, (size_t)frame->payload);
		if (frame->passed < frame->payload)
			return;
		frame_drop_first(f);
	}
}

/* Clear payload, in its order: into the frames that it belongs to. */
static void pass_payload(void *user, const uint8_t *p, size_t n)
{
	struct frames *f = user;
	while (n) {
		pass_heads(f);
		struct frame *frame = frame_at(f, 0);
		uint64_t room = frame->payload - frame->passed;
		size_t part = n < room ? n : (size_t)room;
		pass_masked(f, frame, p, part);
		p += part;
		n -= part;
	}
}

/* -- in -- */

/* How long the head is that begins so; as far as that is known. */
static size_t head_length(const struct frame *frame)
{
	uint8_t size = frame->head[1] & 0x7f;
	size_t more = size == 126 ? 2 : size == 127 ? 8 : 0;
	return frame->head_len < 2 ? 2 : 2 + more + (frame->head[1] & 0x80 ? 4 : 0);
}

static uint64_t payload_length(const uint8_t *head)
{
	uint8_t size = head[1] & 0x7f;
	size_t count = size == 126 ? 2 : size == 127 ? 8 : 0;
	uint64_t length = 0;
	for (size_t i = 0; i < count; i++)
		length = length << 8 | head[2 + i];
	return count ? length : size;
}

/* What a head may say where it stands. */
static bool frame_is_right(const struct frames *f)
{
	const struct frame *now = &f->now;
	bool extended = now->head[0] & 0x70, goes_on = !(now->head[0] & 0x0f);
	if ((extended && f->strict) || now->payload > INT64_MAX)
		return false;
	if (is_control(now))
		return is_final(now) && now->payload <= CONTROL_MAX;
	return goes_on == f->in_message;
}

/* The head of the frame that comes is whole. */
static int frame_begin(struct frames *f)
{
	struct frame *now = &f->now;
	now->payload = f->left = payload_length(now->head);
	if (now->head[1] & 0x80)
		memcpy(now->mask, now->head + now->head_len - 4, 4);
	if (f->count == FRAMES_MAX)
		pass_heads(f);
	if (f->count == FRAMES_MAX || !frame_is_right(f))
		return -EBADMSG;
	if (!is_control(now)) {
		f->unread = f->in_message ? f->unread : now->head[0] & 0x70;
		f->in_message = !is_final(now);
	}
	f->count++;
	*frame_at(f, f->count - 1) = *now;
	return 0;
}

/* A control frame is looked through by itself, and waits for its turn. */
static int control_whole(struct frames *f, unsigned *ret_index)
{
	size_t n = (size_t)f->now.payload;
	if (f->redact)
		needles_redact(f->needles, f->control, n);
	else if (needles_in(f->needles, f->control, n, ret_index))
		return -EACCES;
	uint8_t *copy = n ? malloc(n) : NULL;
	if (n && !copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, f->control, n);
	frame_at(f, f->count - 1)->control = copy;
	return 0;
}

/* The frame that comes is whole. */
static int frame_end(struct frames *f, unsigned *ret_index)
{
	int r = 0;
	if (is_control(&f->now))
		r = control_whole(f, ret_index);
	else if (is_final(&f->now) && !f->unread)
		r = scan_end(f->scan, pass_payload, f, ret_index);
	f->now = (struct frame){.head_len = 0};
	return r;
}

/* At most SLICE payload bytes of the frame that comes. */
static int take_payload(struct frames *f, const uint8_t *p, size_t n, unsigned *ret_index)
{
	uint64_t at = f->now.payload - f->left;
	uint8_t plain[SLICE];
	mask_bytes(&f->now, at, p, n, plain);
	f->left -= n;
	if (is_control(&f->now))
		memcpy(f->control + at, plain, n);
	else if (f->unread)
		pass_payload(f, plain, n); /* nothing is held: its message is all there is */
	else
		return scan_push(f->scan, plain, n, pass_payload, f, ret_index);
	return 0;
}

/* Takes some of p, as *ret_taken says. */
static int take(struct frames *f, const uint8_t *p, size_t n, size_t *ret_taken,
		unsigned *ret_index)
{
	struct frame *now = &f->now;
	int r;
	if (now->head_len < head_length(now)) {
		now->head[now->head_len++] = *p;
		*ret_taken = 1;
		if (now->head_len < head_length(now))
			return 0;
		r = frame_begin(f);
	} else {
		n = n < SLICE ? n : SLICE;
		*ret_taken = n < f->left ? n : (size_t)f->left;
		r = take_payload(f, p, *ret_taken, ret_index);
	}
	return r < 0 || f->left ? r : frame_end(f, ret_index);
}

int frames_push(struct frames *f, const uint8_t *p, size_t n, scan_sink sink, void *user,
		unsigned *ret_index)
{
	f->sink = sink;
	f->user = user;
	while (n) {
		size_t taken;
		int r = take(f, p, n, &taken, ret_index);
		if (r < 0)
			return r;
		p += taken;
		n -= taken;
	}
	pass_heads(f);
	return 0;
}

bool frames_is_weak(const struct frames *f)
{
	return scan_is_weak(f->scan);
}

void frames_relent(struct frames *f, scan_sink sink, void *user)
{
	f->sink = sink;
	f->user = user;
	scan_relent(f->scan, pass_payload, f);
	pass_heads(f);
}
