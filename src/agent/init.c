/* SPDX-License-Identifier: Apache-2.0 */
/* POST /init: the host sets the scene. What concerns the machine as a whole happens only in a VM.
 */
#include <errno.h>

#include "agent/agent.h"
#include "agent/machine.h"
#include "base/cleanup.h"

#define INIT_BODY_MAX (1024 * 1024) /* bytes */

/* Randomness before names, so that nobody draws the twin's; the clock last, when all that takes
   time is done. */
static int apply_to_machine(const struct settings_request *req, struct err *e)
{
	int r = 0;
	if (req->entropy)
		r = machine_add_entropy(req->entropy, req->entropy_len, e);
	if (r == 0 && req->hostname)
		r = machine_set_hostname(req->hostname, e);
	if (r == 0 && req->machine_id)
		r = machine_set_id(req->machine_id, e);
	if (r == 0 && req->has_time)
		r = machine_set_clock(req->time_ns, e);
	return r;
}

static int check_user(const struct settings_request *req, struct err *e)
{
	auto_user struct user u = {0};
	if (!req->user || !*req->user)
		return 0;
	int r = user_load(req->user, &u);
	if (r == -ENOENT)
		return err_set(e, EINVAL, "defaultUser '%s' does not exist", req->user);
	return r < 0 ? err_sys(e, -r, "defaultUser '%s'", req->user) : 0;
}

static void accepted(struct http_exchange *x)
{
	struct http_fields fields = {0};
	if (http_fields_add(&fields, "X-Envd-Version", AGENT_ENVD_VERSION) < 0 ||
	    http_exchange_start(x, 204, &fields, HTTP_NO_BODY, 0) < 0)
		http_exchange_abort(x);
	else
		http_exchange_end(x);
	http_fields_done(&fields);
}

static int apply(struct agent *a, struct http_exchange *x, struct settings_request *req,
		 struct err *e)
{
	if (!settings_take(&a->settings, req))
		return 0; /* a late one: what is newer holds */
	if (req->thawed) {
		agent_drop_others(a, x);
		agent_hold_longer(a);
	}
	return a->machine ? apply_to_machine(req, e) : 0;
}

static void on_body(void *user, struct http_exchange *x, const char *body, size_t n)
{
	struct agent *a = user;
	struct settings_request req;
	struct err e = {0};
	if (settings_read(body, n, &req, &e) < 0) {
		http_exchange_reply_error(x, 400, "%s", e.text);
		return;
	}
	if (check_user(&req, &e) < 0)
		http_exchange_reply_error(x, 400, "%s", e.text);
	else if (apply(a, x, &req, &e) < 0)
		http_exchange_reply_error(x, 500, "%s", e.text);
	else
		accepted(x);
	settings_request_done(&req);
}

static void on_gone(void *user)
{
	(void)user;
}

void agent_init_call(struct agent *a, struct http_exchange *x)
{
	http_exchange_collect(x, INIT_BODY_MAX, on_body, on_gone, a);
}
