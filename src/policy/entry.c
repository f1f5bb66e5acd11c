/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/entry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* "egress[2]", or "proxy" for what is no list. */
static const char *entry_name(const struct entry *at, char out[64])
{
	if (at->index == SIZE_MAX)
		snprintf(out, 64, "%s", at->section);
	else
		snprintf(out, 64, "%s[%zu]", at->section, at->index);
	return out;
}

/* Truths and nothing are one value wherever they stand, and so have no place. */
static bool has_place(const json_t *value)
{
	return value && !json_is_null(value) && !json_is_boolean(value);
}

int entry_error(const struct entry *at, const char *field, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX], name[64];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	const json_t *value = json_object_get(at->value, field);
	return doc_error(at->doc, has_place(value) ? value : at->value, at->e, "%s.%.64s: %s",
			 entry_name(at, name), field, text);
}

int entry_item_error(const struct entry *at, const char *field, size_t i, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX], name[64];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	const json_t *list = json_object_get(at->value, field), *item = json_array_get(list, i);
	return doc_error(at->doc, has_place(item) ? item : list, at->e, "%s.%s[%zu]: %s",
			 entry_name(at, name), field, i, text);
}

const char *unknown_member(const json_t *obj, const char *const *known)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)obj, key, value)
	{
		const char *const *k = known;
		while (*k && !str_eq(*k, key))
			k++;
		if (!*k)
			return key;
	}
	return NULL;
}

int entry_check(const struct entry *at, const char *const *known, const char *allowed)
{
	char name[64];
	if (!json_is_object(at->value))
		return doc_error(at->doc, at->value, at->e, "%s: must be a mapping with %s",
				 entry_name(at, name), allowed);
	const char *unknown = unknown_member(at->value, known);
	if (unknown)
		return entry_error(at, unknown, "unknown field; allowed are %s", allowed);
	return 0;
}

const json_t *entry_get(const struct entry *at, const char *field)
{
	const json_t *j = json_object_get(at->value, field);
	return json_is_null(j) ? NULL : j;
}

int entry_string(const struct entry *at, const char *field, bool must, const char **ret)
{
	const json_t *j = entry_get(at, field);
	*ret = NULL;
	if (!j)
		return must ? entry_error(at, field, "missing") : 0;
	if (!json_is_string(j))
		return entry_error(at, field, "must be a string");
	*ret = item_string(j);
	return *ret ? 0 : entry_error(at, field, "a NUL in a string");
}

int entry_bool(const struct entry *at, const char *field, bool *ret)
{
	const json_t *j = entry_get(at, field);
	if (j && !json_is_boolean(j))
		return entry_error(at, field, "must be true or false");
	*ret = json_is_true(j);
	return 0;
}

const char *item_string(const json_t *item)
{
	const char *s = json_string_value(item);
	return s && strlen(s) == json_string_length(item) ? s : NULL;
}
