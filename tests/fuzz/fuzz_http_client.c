/* SPDX-License-Identifier: Apache-2.0 */
/* A client's connection: any bytes for responses, cut anywhere, whatever its user does and when. */
#include "http/client.h"
#include "http_drive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct caller {
	struct drive d;
	struct http_client *c; /* NULL when over */
	unsigned in_call;
	bool active, head_seen;
};

static void act(struct caller *k);

static void on_head(void *user, const struct http_head *head)
{
	struct caller *k = user;
	require(!k->in_call && k->active && !k->head_seen && head->status >= 200);
	k->head_seen = true;
	act(k);
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct caller *k = user;
	require(!k->in_call && k->active && k->head_seen && n && p);
	act(k);
}

static void on_end(void *user)
{
	struct caller *k = user;
	require(!k->in_call && k->active && k->head_seen);
	k->active = false;
	act(k);
}

static void on_drained(void *user)
{
	struct caller *k = user;
	require(!k->in_call && k->active);
	act(k);
}

static void on_failed(void *user, const struct err *why)
{
	struct caller *k = user;
	require(!k->in_call && k->c && k->active && why->code);
	k->active = false;
	k->c = NULL;
}

static const struct http_call_ops call_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
	.drained = on_drained,
	.failed = on_failed,
};

static void on_closed(void *user)
{
	struct caller *k = user;
	require(!k->in_call && k->c && !k->active);
	k->c = NULL;
}

static void call(struct caller *k, uint8_t how)
{
	static const char *const methods[] = {"GET", "HEAD", "POST", "PUT"};
	struct http_field host = {"Host", "a"};
	struct http_head head = {
		.method = (char *)(uintptr_t)methods[how & 3],
		.target = (char[]){"/"},
		.fields = {.list = &host, .count = 1},
		.framing = how & 2 ? (how & 4 ? HTTP_CHUNKED : HTTP_LENGTH) : HTTP_NO_BODY,
		.length = 6,
	};
	bool reusable = http_client_reusable(k->c);
	int r = http_client_call(k->c, &head, 0, &call_ops, k);
	require(r != 0 || reusable);
	if (r == 0) {
		k->active = true;
		k->head_seen = false;
	}
}

static void act(struct caller *k)
{
	if (!k->c)
		return;
	uint8_t what = drive_next(&k->d);
	k->in_call++;
	switch (what % 8) {
	case 0:
		http_client_read(k->c, false);
		break;
	case 1:
		http_client_read(k->c, true);
		break;
	case 2:
	case 3:
	case 4:
		call(k, what >> 3);
		break;
	case 5:
		http_client_write(k->c, "abc", 3);
		break;
	case 6:
		http_client_finish(k->c);
		break;
	default:
		if (what > 240) {
			http_client_close(k->c);
			k->c = NULL;
			k->active = false;
		}
		break;
	}
	k->in_call--;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct caller k = {0};
	drive_init(&k.d, data, size);
	k.c = http_client_new(k.d.s, on_closed, &k);
	require(k.c);
	call(&k, drive_next(&k.d));
	drive_turns(&k.d, 2);
	while (k.c && drive_piece(&k.d)) {
		drive_turns(&k.d, 3);
		act(&k);
	}
	drive_turns(&k.d, 3);
	drive_hang_up(&k.d);
	if (k.c)
		http_client_close(k.c);
	drive_done(&k.d);
	return 0;
}
