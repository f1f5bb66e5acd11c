/* SPDX-License-Identifier: Apache-2.0 */
/* Which credential a request gets, whether it may, and what that costs. The host of a grant never
 * gets a request that should have the credential and can't: that is refused. */
#include <stdio.h>

#include "egress/request_state.h"

static uint64_t now_ms(const struct request *r)
{
	return uv_now(r->g->loop);
}

/* -- the credential -- */

/* Whether the guest has put the placeholder where the value goes in its place. -errno. */
static int placeholder_sent(const struct request *r, const struct secret *s, struct err *e)
{
	struct injection i;
	int failed = request_inject(r, s, &i, e);
	if (failed)
		return failed;
	bool used = i.used;
	injection_done(&i);
	return used;
}

bool request_find_secret(struct request *r)
{
	struct err why;
	struct secret *s = secrets_for(r->g->secrets, &r->dest);
	if (!s)
		return true;
	if (secret_is_canary(s)) {
		r->alarm = secret_name(s);
		snprintf(why.text, sizeof(why.text), "%s is not to be used", secret_name(s));
		request_refuse_secret(r, 403, why.text);
		return false;
	}
	unsigned status = secret_unusable(s, now_ms(r), &why);
	if (!status && secret_kind(s) == SECRET_SIGV4)
		status = aws_begin(&r->aws, s, http_exchange_head(r->x), &r->g->aws_held, &why);
	int sent = 1;
	if (!status && secret_kind(s) == SECRET_PLACEHOLDER) {
		sent = placeholder_sent(r, s, &why);
		if (sent < 0)
			status = 502;
	}
	if (status) {
		request_refuse_secret(r, status, why.text);
		return false;
	}
	if (sent)
		r->secret = s;
	return true;
}

bool request_keeps_secret(const struct request *r, struct err *why)
{
	if (!r->secret)
		return true;
	if (secret_stopped(r->secret, now_ms(r), why) == 403)
		return false;
	if (secrets_for(r->g->secrets, &r->dest) == r->secret)
		return true;
	snprintf(why->text, sizeof(why->text), "%s is no longer granted for %.32s %.200s",
		 secret_name(r->secret), r->dest.method, r->dest.path);
	return false;
}

/* -- what passes -- */

bool request_pay_secret(struct request *r, uint64_t n, struct err *why)
{
	if (!r->secret || secret_charge(r->secret, n))
		return true;
	gateway_recheck_soon(r->g); /* for the others that used it */
	secret_stopped(r->secret, now_ms(r), why);
	return false;
}

static bool pay_secret(struct request *r, uint64_t n)
{
	struct err why = {0};
	if (request_pay_secret(r, n, &why))
		return true;
	request_refuse_secret(r, 403, why.text);
	return false;
}

bool request_pay(struct request *r, enum quota_way way, uint64_t n)
{
	struct quota_excess excess;
	if (quota_charge(&r->hold, way, n, &excess))
		return pay_secret(r, n);
	request_refuse_excess(r, &excess);
	return false;
}

bool request_pay_body(struct request *r, uint64_t n)
{
	struct quota_excess excess;
	if (quota_charge_body(&r->hold, n, &excess))
		return pay_secret(r, n);
	request_refuse_excess(r, &excess);
	return false;
}
