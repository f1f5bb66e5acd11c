/* SPDX-License-Identifier: Apache-2.0 */
/* One POST to an authorization server, over libcurl, in the calling thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TOKEN_CALL_MS  (15 * 1000) /* from start to the whole answer */
#define TOKEN_BODY_MAX (64 * 1024) /* bytes of an answer */
#define TOKEN_URL_MAX  2048        /* bytes */

/* https://, or http:// to this host itself (127.0.0.0/8, ::1, localhost); no user, no fragment. 0
 * or -EINVAL. */
int token_url_check(const char *url, struct err *e);

/* All borrowed; what may be missing is NULL. */
struct token_call {
	const char *url;
	const char *ca;              /* PEM: trusted instead of the system's store */
	const char *user, *password; /* Authorization: Basic; or */
	const char *bearer;          /* Authorization: Bearer */
	const char *accept;
	const char *form; /* the body, x-www-form-urlencoded */
	int stop_fd;      /* -1: none */
};

struct token_answer {
	unsigned status;
	char *body; /* len bytes and a NUL */
	size_t len;
	int64_t skew_s; /* how far the server's clock is ahead of ours, by its Date; 0: not known,
			   or less than can be told */
};

void token_answer_done(struct token_answer *a); /* wipes */

/* 0: there is an answer, of whatever status. -ECANCELED: told to stop; -EIO: none, e says why. */
int token_call(const struct token_call *c, struct token_answer *ret, struct err *e);
