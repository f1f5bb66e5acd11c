/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /run, decoded and judged before anything is made. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/sandbox.h"

struct run_request {
	struct sandbox_spec spec;
	json_t *start; /* the agent's Start message */
	char *user;    /* NULL: the image's default */
	bool detach;
};

/* n: where stored credentials are looked up; NULL: there are none. 0, or -EINVAL, -ENOENT (of
   those) with e naming the member and what is right; ret is untouched on failure. */
int run_request_parse(struct node *n, const char *body, size_t len, struct run_request *ret,
		      struct err *e);
void run_request_done(struct run_request *r);
