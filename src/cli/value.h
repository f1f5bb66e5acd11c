/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of credentials, from a variable, a file, standard input or a terminal, made into what the
 * API takes. Errors name the credential and never hold what was read, nor what was meant to be the
 * name of a file: it may be the value.
 */
#pragma once

#include <stdbool.h>

#include "base/doc.h"
#include "base/err.h"

#define VALUE_TEXT_MAX (256 * 1024) /* bytes of a file with values */

/* What belongs to one credential. */
enum value_form {
	VALUE_TEXT,          /* "value": a token or password, one line */
	VALUE_AWS,           /* "accessKeyId", "secretAccessKey", "sessionToken"? */
	VALUE_CERTIFICATE,   /* "certificate", "key": PEM */
	VALUE_CLIENT_SECRET, /* "clientSecret" */
	VALUE_REFRESH_TOKEN, /* "refreshToken", "clientSecret"? */
	VALUE_KEY,           /* "key": a private key, PEM */
};

/* The form for a way to put a credential in: by its kind. */
enum value_form value_form_of(const char *kind);

/*
 * The members above out of a text, a new reference. One newline at the end is dropped. What has
 * several members is JSON (also as AWS's and Google's tools write it), AWS's credentials file with
 * one profile, or PEM. 0, -EINVAL, -ENOMEM.
 */
int value_parse(const char *name, enum value_form form, const char *text, size_t len, json_t **ret,
		struct err *e);

/* The same from our environment: the variable, or NULL: that of its name, and for AWS those that
   its tools read. -ENOENT when it is unset or empty. */
int value_from_env(const char *name, enum value_form form, const char *variable, json_t **ret,
		   struct err *e);

/*
 * The same from a file, or with NULL or "-" from standard input, which is asked when it is a
 * terminal. oauth2 may be NULL: members that it lacks (tokenURL, clientID, issuer, keyID) are taken
 * from a key file of Google's form.
 */
int value_from_file(const char *name, enum value_form form, const char *path, json_t *oauth2,
		    json_t **ret, struct err *e);

/* As an entry has it: a string, or the object of several members; a new reference. NULL: no memory.
 */
json_t *value_of_entry(const json_t *values);
