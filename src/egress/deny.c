/* SPDX-License-Identifier: Apache-2.0 */
/* One list of members for both readers, so that what the guest is told is what the record says; but
 * for what would tell it which credential is watched. */
#include "egress/deny.h"

static void optional(struct record *r, const char *key, const char *value)
{
	if (value)
		record_string(r, key, value);
}

static void destination(struct record *r, const struct denial *d)
{
	optional(r, "scheme", d->scheme);
	optional(r, "host", d->host);
	record_number(r, "port", d->port);
	optional(r, "method", d->method);
	optional(r, "path", d->path);
	optional(r, "rule", d->rule);
	optional(r, "limit", d->limit);
}

int deny_record(struct control *c, const struct denial *d, struct control_wait *w)
{
	struct record *r = control_record(c, "egress.deny");
	destination(r, d);
	record_string(r, "reason", d->reason);
	optional(r, "leak", d->leak);
	optional(r, "alarm", d->alarm);
	optional(r, "stopped", d->stopped);
	return control_send(c, w);
}

int deny_body(struct buf *out, const struct denial *d)
{
	struct record r;
	record_open(&r, out);
	record_number(&r, "code", d->status);
	record_string(&r, "message", d->reason);
	destination(&r, d);
	optional(&r, "allow_with", d->allow_with);
	int failed = record_close(&r);
	return failed ? failed : buf_append(out, "\n", 1);
}
