/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Web Tokens, signed with a private key: RS256 with an RSA key, ES256 with one on P-256.
 * Sources: RFC 7519, RFC 7515, RFC 7518. */
#pragma once

#include <jansson.h>

#include "base/err.h"

/* Whether this PEM text is a key that can sign. 0, -EINVAL; e never holds anything of it. */
int jwt_check_key(const char *pem, struct err *e);

/* *ret is a heap string that the caller wipes. key_id ("kid") may be NULL. 0, -EINVAL (the key),
 * -EIO, -ENOMEM. */
int jwt_sign(const char *pem, const char *key_id, const json_t *claims, char **ret, struct err *e);
