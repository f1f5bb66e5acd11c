/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a sandbox's records into a policy, in a worker, and answers with it. */
#include "daemon/learned.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "daemon/learn.h"
#include "daemon/trail.h"
#include "daemon/waiting.h"

struct learned {
	struct http_exchange *x;
	struct trail *trail;
	struct learn *learn;
};

static void learned_free(void *user)
{
	struct learned *d = user;
	learn_free(d->learn);
	free(d);
}

static int on_line(void *user, const json_t *record, const char *line, size_t n)
{
	struct learned *d = user;
	(void)line;
	(void)n;
	return learn_take(d->learn, record);
}

static void answer(struct learned *d, bool found)
{
	struct err e;
	auto_free char *yaml = found ? learn_to_yaml(d->learn, &e) : NULL;
	auto_json json_t *j = yaml ? json_pack("{s:s, s:I}", "text", yaml, "rules",
					       (json_int_t)learn_rules(d->learn))
				   : NULL;
	auto_free char *text = j ? doc_to_text(j) : NULL;
	if (text)
		http_exchange_reply(d->x, 200, "application/json", text, strlen(text));
	else if (!found)
		http_exchange_reply_error(d->x, 404, "no such sandbox is on record");
	else
		http_exchange_reply_error(d->x, 500, "%s", yaml ? "no memory" : e.text);
	trail_close(d->trail, learned_free);
}

static void on_read(void *user, bool at_end, bool found)
{
	struct learned *d = user;
	if (at_end)
		answer(d, found);
	else
		trail_next(d->trail);
}

static void on_failed(void *user, const struct err *why)
{
	struct learned *d = user;
	http_exchange_reply_error(d->x, 500, "%s", why->text);
	trail_close(d->trail, learned_free);
}

static const struct trail_ops trail_ops = {.line = on_line, .read = on_read, .failed = on_failed};

static void on_gone(void *user)
{
	struct learned *d = user;
	trail_close(d->trail, learned_free);
}

static const struct http_exchange_ops exchange_ops = WAITING_OPS(on_gone);

void learned_serve(struct node *n, struct http_exchange *x, const char *ref)
{
	struct err e = {0};
	struct learned *d = calloc(1, sizeof(*d));
	if (d)
		d->learn = learn_new();
	if (!d || !d->learn) {
		free(d);
		http_exchange_reply_error(x, 500, "no memory");
		return;
	}
	d->x = x;
	d->trail = trail_open(n, ref, &trail_ops, d, &e);
	if (!d->trail) {
		learned_free(d);
		http_exchange_reply_error(x, 500, "%s", e.text);
		return;
	}
	http_exchange_on(x, &exchange_ops, d);
	trail_next(d->trail);
}
