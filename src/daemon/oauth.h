/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OAuth 2: a token from an authorization server, over libcurl, in the calling thread. Sources: RFC
 * 6749 (client credentials, refresh token), RFC 7523 (JWT bearer), RFC 7518 (RS256, ES256),
 * GitHub's "Authenticating as a GitHub App installation".
 *
 * Only https is spoken, and http to this host itself; redirects are not followed; an answer is
 * bounded and has a deadline. Errors never hold what a server said but for the codes of RFC 6749.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "daemon/source.h"

/* Judges the settings ("oauth2" of a definition) and puts the defaults. 0, -EINVAL, -ENOMEM. */
int oauth_check(json_t *settings, struct err *e);

/* Whether these are the values that the settings need, and no others: clientSecret, refreshToken,
 * key (PEM). 0, -EINVAL. */
int oauth_check_values(const json_t *settings, const json_t *values, struct err *e);

/* Whether an answer may bring values to be stored: it must not be thrown away. */
bool oauth_rotates(const json_t *settings);

/* Asks for a token. stop_fd: readable when we are to give up. Codes as of source_read(). */
int oauth_fetch(const json_t *settings, const json_t *values, int stop_fd, struct source_value *ret,
		struct err *e);
