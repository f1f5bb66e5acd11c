/* SPDX-License-Identifier: Apache-2.0 */
/* How a request is sent: its head, written anew, with what it gets of a credential. Values are in
 * it for the time of one call; what holds copies of them is wiped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "egress/fields.h"
#include "egress/request_state.h"

#define HOST_FIELD_MAX (POLICY_HOST_MAX + 8) /* with ":port" */

/* "host" or "host:port", as the Host field of the canonical destination. */
static void write_host(const struct policy_dest *dest, char out[HOST_FIELD_MAX])
{
	bool usual = dest->port == (dest->scheme == POLICY_HTTPS ? 443 : 80);
	if (usual)
		snprintf(out, HOST_FIELD_MAX, "%s", dest->host);
	else
		snprintf(out, HOST_FIELD_MAX, "%s:%u", dest->host, dest->port);
}

/* Which fields that end here otherwise go on. */
static unsigned request_hop(const struct request *r)
{
	unsigned hop = policy_reads_requests(r->g->policy, &r->dest) ? 0 : FIELDS_OVERRIDES;
	if (r->websocket)
		return hop | FIELDS_WEBSOCKET;
	bool both = http_exchange_version(r->x) == 2 &&
		    http_client_version(upstream_client(r->upstream)) == 2;
	return both ? hop | FIELDS_TRAILERS : hop;
}

int request_inject(const struct request *r, const struct secret *s, struct injection *ret,
		   struct err *e)
{
	const struct http_fields *in = &http_exchange_head(r->x)->fields;
	struct inject_field fields[HTTP_FIELDS_MAX];
	char host[HOST_FIELD_MAX];
	size_t count = in->count < HTTP_FIELDS_MAX ? in->count : HTTP_FIELDS_MAX;
	for (size_t i = 0; i < count; i++)
		fields[i] = (struct inject_field){in->list[i].name, in->list[i].value};
	write_host(&r->dest, host);
	struct inject_request q = {
		.method = r->dest.method,
		.host = host,
		.path = r->path,
		.query = r->query,
		.payload = r->aws.payload,
		.fields = fields,
		.field_count = count,
		.now_s = (int64_t)(clock_wall_ms() / 1000),
	};
	return inject(s, &q, ret, e);
}

static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

/* Sends the head with what is put in. 0 or -errno. */
static int send_head(struct request *r, const struct injection *i)
{
	const struct http_head *in = http_exchange_head(r->x);
	struct fields_credential credential = {r->secret, i->fields, i->count};
	bool concerns = secrets_concern(r->g->secrets, r->dest.host);
	const char *path = i->path ? i->path : r->path, *query = i->query ? i->query : r->query;
	bool held = r->aws.body == AWS_HELD;
	char host[HOST_FIELD_MAX];
	struct fields f;
	char *target = query ? str_printf("%s?%s", path, query) : strdup(path);
	if (!target)
		return -ENOMEM;
	write_host(&r->dest, host);
	fields_for_upstream(&f, &in->fields, host, concerns ? &credential : NULL, request_hop(r));
	struct http_head out = {
		.method = in->method,
		.target = target,
		.minor = 1,
		.fields = f.list,
		.framing = held ? HTTP_LENGTH : in->framing,
		.length = held ? r->aws.held.len : in->length,
		.keep_alive = true,
		.upgrade = r->websocket,
		.secret_target = i->path || i->query,
		.secret_fields = i->count,
	};
	int failed = http_client_call(upstream_client(r->upstream), &out, 0, &request_call_ops, r);
	wipe(target);
	return failed;
}

/* Takes what the request gets of its credential, which may have changed since it was decided.
 * False: it was refused. */
static bool request_take_secret(struct request *r, struct injection *ret)
{
	struct err why = {0};
	*ret = (struct injection){0};
	if (!r->secret)
		return true;
	unsigned status = secret_stopped(r->secret, uv_now(r->g->loop), &why);
	if (status) {
		request_refuse_secret(r, status, why.text);
		return false;
	}
	int failed = request_inject(r, r->secret, ret, &why);
	if (!failed)
		return true;
	request_fail(r, failed == -EINVAL ? 400 : 502, why.text, NULL);
	return false;
}

void request_send(struct request *r, struct upstream *u)
{
	struct injection i;
	r->upstream = u;
	r->state = REQUEST_RUNNING;
	if (!request_take_secret(r, &i))
		return;
	int failed = send_head(r, &i);
	if (!failed && !request_body_begin(r, &i.chain))
		failed = -ENOMEM;
	injection_done(&i);
	if (failed)
		request_fail(r, 502, "the request can't be passed on", NULL);
	else
		http_exchange_read(r->x, true);
}
