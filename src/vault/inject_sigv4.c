/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What AWS gets: the time and the session token as fields, then a signature over these, Host, the
 * media type and every x-amz-* field of the guest, as AWS wants it. Other fields are not signed, so
 * that what stands between may change them.
 */
#include "vault/inject_sigv4.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

#define SIGNED_MAX 160 /* fields: all of a request, and ours */

static const char content_hash[] = "X-Amz-Content-Sha256";

static bool is_signed(const char *field)
{
	return !strncasecmp(field, "x-amz-", strlen("x-amz-")) ||
	       !strcasecmp(field, "Content-Type") || !strcasecmp(field, "Content-MD5");
}

static int add(struct injection *i, const char *name, const char *value, struct err *e)
{
	char *name_copy = strdup(name), *value_copy = strdup(value);
	if (!name_copy || !value_copy) {
		free(name_copy);
		if (value_copy)
			explicit_bzero(value_copy, strlen(value_copy));
		free(value_copy);
		return err_set(e, ENOMEM, "no memory");
	}
	i->fields[i->count++] = (struct inject_field){name_copy, value_copy};
	return 0;
}

static bool has(const struct inject_request *q, const char *name)
{
	for (size_t i = 0; i < q->field_count; i++)
		if (!strcasecmp(q->fields[i].name, name))
			return true;
	return false;
}

static int add_own(const struct secret *s, const struct inject_request *q, struct injection *ret,
		   struct err *e)
{
	char stamp[SIGV4_STAMP_SIZE];
	const char *session = secret_value(s, SECRET_SESSION, NULL);
	sigv4_stamp(q->now_s, stamp);
	int r = add(ret, "X-Amz-Date", stamp, e);
	if (r == 0 && session)
		r = add(ret, "X-Amz-Security-Token", session, e);
	if (r == 0 && sigv4_is_s3(secret_recipe(s, "service")) && !has(q, content_hash))
		r = add(ret, content_hash, q->payload, e);
	return r;
}

/* Whether one of ours takes the place of the guest's, or nothing does. */
static bool stays_behind(const struct secret *s, const struct injection *own, const char *name)
{
	for (size_t i = 0; i < own->count; i++)
		if (str_same_field(name, own->fields[i].name))
			return true;
	return inject_strips(s, name);
}

static int collect(const struct secret *s, const struct inject_request *q,
		   const struct injection *own, struct sigv4_field list[SIGNED_MAX], size_t *ret_n,
		   struct err *e)
{
	size_t n = 0;
	list[n++] = (struct sigv4_field){"Host", q->host};
	for (size_t i = 0; i < own->count; i++)
		list[n++] = (struct sigv4_field){own->fields[i].name, own->fields[i].value};
	for (size_t i = 0; i < q->field_count; i++) {
		const char *name = q->fields[i].name;
		if (!is_signed(name) || stays_behind(s, own, name))
			continue;
		if (n == SIGNED_MAX)
			return err_set(e, EINVAL, "the request has too many fields to be signed");
		list[n++] = (struct sigv4_field){name, q->fields[i].value};
	}
	*ret_n = n;
	return 0;
}

int inject_sigv4(const struct secret *s, const struct inject_request *q, struct injection *ret,
		 struct err *e)
{
	struct sigv4_field list[SIGNED_MAX];
	struct sigv4_request request = {
		.method = q->method,
		.path = q->path,
		.query = q->query,
		.fields = list,
		.payload = q->payload,
		.service = secret_recipe(s, "service"),
		.region = secret_recipe(s, "region"),
		.encode_once = sigv4_is_s3(secret_recipe(s, "service")),
		.now_s = q->now_s,
	};
	struct sigv4_key key = {
		.id = secret_value(s, SECRET_ID, NULL),
		.secret = secret_value(s, SECRET_VALUE, NULL),
	};
	char *text = NULL;
	if (!q->payload)
		return err_set(e, EINVAL, "what is to be signed of the body is not known");
	int r = add_own(s, q, ret, e);
	if (r == 0)
		r = collect(s, q, ret, list, &request.count, e);
	if (r == 0)
		r = sigv4_sign(&request, &key, &text, &ret->chain, e);
	if (r == 0)
		r = add(ret, "Authorization", text, e);
	free(text);
	ret->used = r == 0;
	return r;
}
