/* SPDX-License-Identifier: Apache-2.0 */
/* Small texts of the protocol: bytes into JSON, the user in an Authorization field. */
#pragma once

#include <stdint.h>

#include "base/doc.h"

/* A JSON string; bytes that are not UTF-8 become U+FFFD. A new reference, NULL: no memory. */
json_t *text_to_json(const char *s);

/* The user name in "Basic base64(name:…)", a heap string in *ret. 0, -EINVAL, -ENOMEM. */
int text_basic_user(const char *authorization, char **ret);

/* Whether two strings are equal, in a time that depends only on their lengths. */
bool text_same_secret(const char *a, const char *b);
