/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON by jansson; YAML by libyaml's events into the same tree, with a mark (line, column) for each
 * value. Plain YAML scalars become null, booleans, integers or strings as YAML 1.2's core schema
 * says; "yes", "no", "on", "off" stay strings, so that they can't be mistaken.
 */
#include "base/doc.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/str.h"

#define DOC_DEPTH_MAX 64
#define DOC_BYTES_MAX (4u << 20)

struct doc_mark {
	const json_t *value;
	size_t line, column; /* from 1 */
};

static void wiping_free(void *p)
{
	if (!p)
		return;
	explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

void doc_wipe_on_free(void)
{
	json_set_alloc_funcs(malloc, wiping_free);
}

/* jansson's own limit on nesting is 2048, more than our recursion wants. Strings are skipped. */
static bool json_too_deep(const char *text, size_t len)
{
	unsigned depth = 0;
	bool quoted = false;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (quoted) {
			if (c == '\\')
				i++;
			else if (c == '"')
				quoted = false;
		} else if (c == '"') {
			quoted = true;
		} else if (c == '[' || c == '{') {
			if (++depth > DOC_DEPTH_MAX)
				return true;
		} else if ((c == ']' || c == '}') && depth) {
			depth--;
		}
	}
	return false;
}

json_t *doc_parse_json(const char *text, size_t len, struct err *e)
{
	if (json_too_deep(text, len)) {
		err_set(e, EINVAL, "JSON is nested deeper than %d", DOC_DEPTH_MAX);
		return NULL;
	}
	json_error_t je;
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (!j) {
		/* jansson quotes the place, which may be within a secret. */
		char *quote = strstr(je.text, " near '");
		if (quote)
			*quote = '\0';
		err_set(e, EINVAL, "not valid JSON: line %d, column %d: %s", je.line, je.column,
			je.text);
	}
	return j;
}

char *doc_to_text(const json_t *j)
{
	return json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
}

struct yaml_reader {
	yaml_parser_t parser;
	const char *name;
	struct doc_mark *marks;
	size_t count, cap;
	struct err *e;
};

static int yaml_fail(struct yaml_reader *y, yaml_mark_t at, const char *what)
{
	return err_set(y->e, EINVAL, "%s:%zu:%zu: %s", y->name, at.line + 1, at.column + 1, what);
}

static int yaml_next(struct yaml_reader *y, yaml_event_t *ev)
{
	if (yaml_parser_parse(&y->parser, ev))
		return 0;
	yaml_mark_t at = y->parser.problem_mark;
	return yaml_fail(y, at, y->parser.problem ? y->parser.problem : "not valid YAML");
}

static int yaml_mark(struct yaml_reader *y, const json_t *value, yaml_mark_t at)
{
	/* null, true and false are shared by all of jansson: the first mark would speak for each.
	 */
	if (json_is_null(value) || json_is_boolean(value))
		return 0;
	if (y->count == y->cap) {
		size_t cap = y->cap ? y->cap * 2 : 64;
		struct doc_mark *more = reallocarray(y->marks, cap, sizeof(*more));
		if (!more)
			return -ENOMEM;
		y->marks = more;
		y->cap = cap;
	}
	y->marks[y->count++] = (struct doc_mark){value, at.line + 1, at.column + 1};
	return 0;
}

static bool plain_integer(const char *s, json_int_t *ret)
{
	uint64_t v;
	bool minus = *s == '-';
	if (str_to_u64(s + minus, 0, INT64_MAX, &v) < 0)
		return false;
	*ret = minus ? -(json_int_t)v : (json_int_t)v;
	return true;
}

static json_t *plain_scalar(const char *s)
{
	json_int_t n;
	if (!*s || str_eq(s, "~") || str_eq(s, "null"))
		return json_null();
	if (str_eq(s, "true"))
		return json_true();
	if (str_eq(s, "false"))
		return json_false();
	if (plain_integer(s, &n))
		return json_integer(n);
	return json_string(s);
}

static int yaml_scalar(struct yaml_reader *y, const yaml_event_t *ev, json_t **ret)
{
	const char *s = (const char *)ev->data.scalar.value;
	size_t n = ev->data.scalar.length;
	if (ev->data.scalar.anchor || ev->data.scalar.tag)
		return yaml_fail(y, ev->start_mark, "anchors and tags are not supported");
	if (strlen(s) != n)
		return yaml_fail(y, ev->start_mark, "a NUL in a string");
	json_t *j =
		ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain_scalar(s) : json_string(s);
	if (!j)
		return yaml_fail(y, ev->start_mark, "not valid UTF-8");
	*ret = j;
	return 0;
}

static int yaml_value(struct yaml_reader *y, const yaml_event_t *ev, unsigned depth, json_t **ret);

static int yaml_sequence(struct yaml_reader *y, unsigned depth, json_t **ret)
{
	auto_json json_t *list = json_array();
	for (;;) {
		yaml_event_t ev;
		int r = yaml_next(y, &ev);
		if (r < 0)
			return r;
		if (ev.type == YAML_SEQUENCE_END_EVENT) {
			yaml_event_delete(&ev);
			*ret = take_ptr(list);
			return 0;
		}
		json_t *item;
		r = yaml_value(y, &ev, depth, &item);
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
		json_array_append_new(list, item);
	}
}

/* Reads the value of a member whose key event is given. */
static int yaml_member(struct yaml_reader *y, const yaml_event_t *key, unsigned depth, json_t *map)
{
	if (key->type != YAML_SCALAR_EVENT)
		return yaml_fail(y, key->start_mark, "a key must be a plain string");
	const char *name = (const char *)key->data.scalar.value;
	if (strlen(name) != key->data.scalar.length || str_eq(name, "<<"))
		return yaml_fail(y, key->start_mark, "merge keys are not supported");
	if (json_object_get(map, name))
		return yaml_fail(y, key->start_mark, "this key stands here twice");

	yaml_event_t ev;
	int r = yaml_next(y, &ev);
	if (r < 0)
		return r;
	json_t *value;
	r = yaml_value(y, &ev, depth, &value);
	yaml_event_delete(&ev);
	if (r < 0)
		return r;
	if (json_object_set_new(map, name, value) < 0)
		return yaml_fail(y, key->start_mark, "not valid UTF-8");
	return 0;
}

static int yaml_mapping(struct yaml_reader *y, unsigned depth, json_t **ret)
{
	auto_json json_t *map = json_object();
	for (;;) {
		yaml_event_t ev;
		int r = yaml_next(y, &ev);
		if (r < 0)
			return r;
		if (ev.type == YAML_MAPPING_END_EVENT) {
			yaml_event_delete(&ev);
			*ret = take_ptr(map);
			return 0;
		}
		r = yaml_member(y, &ev, depth, map);
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
	}
}

static int yaml_value(struct yaml_reader *y, const yaml_event_t *ev, unsigned depth, json_t **ret)
{
	if (depth == 0)
		return yaml_fail(y, ev->start_mark, "nested too deeply");

	auto_json json_t *value = NULL;
	int r;
	if (ev->type == YAML_SCALAR_EVENT)
		r = yaml_scalar(y, ev, &value);
	else if (ev->type == YAML_SEQUENCE_START_EVENT && !ev->data.sequence_start.anchor)
		r = yaml_sequence(y, depth - 1, &value);
	else if (ev->type == YAML_MAPPING_START_EVENT && !ev->data.mapping_start.anchor)
		r = yaml_mapping(y, depth - 1, &value);
	else
		r = yaml_fail(y, ev->start_mark, "anchors and aliases are not supported");
	if (r == 0)
		r = yaml_mark(y, value, ev->start_mark);
	if (r == 0)
		*ret = take_ptr(value);
	return r;
}

static int yaml_expect(struct yaml_reader *y, yaml_event_type_t type, const char *what)
{
	yaml_event_t ev;
	int r = yaml_next(y, &ev);
	if (r < 0)
		return r;
	if (ev.type != type)
		r = yaml_fail(y, ev.start_mark, what);
	yaml_event_delete(&ev);
	return r;
}

static int yaml_document(struct yaml_reader *y, json_t **ret)
{
	int r = yaml_expect(y, YAML_STREAM_START_EVENT, "not a document");
	if (r < 0)
		return r;
	yaml_event_t ev;
	r = yaml_next(y, &ev);
	if (r < 0)
		return r;
	yaml_event_type_t first = ev.type;
	yaml_event_delete(&ev);
	if (first == YAML_STREAM_END_EVENT) { /* an empty file says nothing: an empty document */
		*ret = json_object();
		return yaml_mark(y, *ret, (yaml_mark_t){0});
	}
	r = yaml_next(y, &ev);
	if (r < 0)
		return r;
	auto_json json_t *root = NULL;
	r = yaml_value(y, &ev, DOC_DEPTH_MAX, &root);
	yaml_event_delete(&ev);
	if (r == 0)
		r = yaml_expect(y, YAML_DOCUMENT_END_EVENT, "more than one document");
	if (r == 0)
		r = yaml_expect(y, YAML_STREAM_END_EVENT, "more than one document");
	if (r == 0)
		*ret = take_ptr(root);
	return r;
}

int doc_load(struct doc *doc, const char *name, const char *text, size_t len, struct err *e)
{
	if (len > DOC_BYTES_MAX)
		return err_set(e, EINVAL, "%s: longer than %u bytes", name, DOC_BYTES_MAX);
	struct yaml_reader y = {.name = name, .e = e};
	if (!yaml_parser_initialize(&y.parser))
		return err_set(e, ENOMEM, "no memory");
	yaml_parser_set_encoding(&y.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&y.parser, (const unsigned char *)text, len);

	json_t *root = NULL;
	int r = yaml_document(&y, &root);
	yaml_parser_delete(&y.parser);
	char *copy = r == 0 ? strdup(name) : NULL;
	if (r == 0 && !copy)
		r = err_set(e, ENOMEM, "no memory");
	if (r < 0) {
		json_decref(root);
		free(y.marks);
		return r;
	}
	*doc = (struct doc){.root = root, .marks = y.marks, .mark_count = y.count, .name = copy};
	return 0;
}

void doc_done(struct doc *doc)
{
	json_decref(doc->root);
	free(doc->marks);
	free(doc->name);
	*doc = (struct doc){0};
}

int doc_error(const struct doc *doc, const json_t *at, struct err *e, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	const char *name = doc->name ? doc->name : "document";
	for (size_t i = 0; i < doc->mark_count; i++)
		if (doc->marks[i].value == at)
			return err_set(e, EINVAL, "%s:%zu:%zu: %s", name, doc->marks[i].line,
				       doc->marks[i].column, text);
	return err_set(e, EINVAL, "%s: %s", name, text);
}

/* *ret NULL: the member is missing or null. */
static int doc_member(const json_t *obj, const char *key, json_type type, const char *wanted,
		      bool must, json_t **ret, struct err *e)
{
	*ret = NULL;
	if (!json_is_object(obj))
		return err_set(e, EINVAL, "%s: expected inside an object", key);
	json_t *j = json_object_get(obj, key);
	if (!j || json_is_null(j))
		return must ? err_set(e, EINVAL, "%s is missing", key) : 0;
	if (json_typeof(j) != type)
		return err_set(e, EINVAL, "%s must be %s", key, wanted);
	*ret = j;
	return 0;
}

static int doc_string(const json_t *obj, const char *key, bool must, const char **ret,
		      struct err *e)
{
	json_t *j;
	int r = doc_member(obj, key, JSON_STRING, "a string", must, &j, e);
	if (r < 0 || !j)
		return r;
	if (strlen(json_string_value(j)) != json_string_length(j))
		return err_set(e, EINVAL, "%s has a NUL in it", key);
	*ret = json_string_value(j);
	return 0;
}

int doc_want_string(const json_t *obj, const char *key, const char **ret, struct err *e)
{
	return doc_string(obj, key, true, ret, e);
}

int doc_opt_string(const json_t *obj, const char *key, const char **ret, struct err *e)
{
	return doc_string(obj, key, false, ret, e);
}

int doc_opt_bool(const json_t *obj, const char *key, bool *ret, struct err *e)
{
	if (!json_is_object(obj))
		return err_set(e, EINVAL, "%s: expected inside an object", key);
	const json_t *j = json_object_get(obj, key);
	if (!j || json_is_null(j))
		return 0;
	if (!json_is_boolean(j))
		return err_set(e, EINVAL, "%s must be true or false", key);
	*ret = json_is_true(j);
	return 0;
}

static int doc_uint(const json_t *obj, const char *key, bool must, uint64_t min, uint64_t max,
		    uint64_t *ret, struct err *e)
{
	json_t *j;
	int r = doc_member(obj, key, JSON_INTEGER, "a whole number", must, &j, e);
	if (r < 0 || !j)
		return r;
	json_int_t v = json_integer_value(j);
	if (v < 0 || (uint64_t)v < min || (uint64_t)v > max)
		return err_set(e, EINVAL, "%s must be from %ju to %ju", key, (uintmax_t)min,
			       (uintmax_t)max);
	*ret = (uint64_t)v;
	return 0;
}

int doc_want_uint(const json_t *obj, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
		  struct err *e)
{
	return doc_uint(obj, key, true, min, max, ret, e);
}

int doc_opt_uint(const json_t *obj, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
		 struct err *e)
{
	return doc_uint(obj, key, false, min, max, ret, e);
}

static int doc_container(const json_t *obj, const char *key, json_type type, bool must,
			 json_t **ret, struct err *e)
{
	json_t *j;
	int r = doc_member(obj, key, type, type == JSON_ARRAY ? "a list" : "an object", must, &j,
			   e);
	if (r == 0 && j)
		*ret = j;
	return r;
}

int doc_want_array(const json_t *obj, const char *key, json_t **ret, struct err *e)
{
	return doc_container(obj, key, JSON_ARRAY, true, ret, e);
}

int doc_opt_array(const json_t *obj, const char *key, json_t **ret, struct err *e)
{
	return doc_container(obj, key, JSON_ARRAY, false, ret, e);
}

int doc_want_object(const json_t *obj, const char *key, json_t **ret, struct err *e)
{
	return doc_container(obj, key, JSON_OBJECT, true, ret, e);
}

int doc_opt_object(const json_t *obj, const char *key, json_t **ret, struct err *e)
{
	return doc_container(obj, key, JSON_OBJECT, false, ret, e);
}

int doc_only(const json_t *obj, const char *const *known, struct err *e)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)obj, key, value)
	{
		const char *const *k = known;
		while (*k && !str_eq(*k, key))
			k++;
		if (!*k)
			return err_set(e, EINVAL, "%s is not known here", key);
	}
	return 0;
}
