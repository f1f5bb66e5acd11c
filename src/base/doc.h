/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents: JSON and YAML, read into one kind of tree (jansson), with checked access.
 * YAML means what JSON can say: no tags, anchors, aliases or merge keys; duplicate keys are errors.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

static inline void cleanup_json(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(cleanup_json)))

/* From now on jansson wipes what it frees, so that secrets do not stay behind. Call first in
 * main(). */
void doc_wipe_on_free(void);

/* Strict JSON: one value, no duplicate keys, UTF-8, nesting <= 64. Returns a new reference, or NULL
 * with e set. */
json_t *doc_parse_json(const char *text, size_t len, struct err *e);

/* A new heap string, compact; NULL when there is no memory. Bytes that are not UTF-8 can't be in a
 * tree. */
char *doc_to_text(const json_t *j);

/* A YAML or JSON document that remembers where each value stood. */
struct doc {
	json_t *root;
	struct doc_mark *marks; /* private */
	size_t mark_count;
	char *name; /* what errors call the file */
};

/* Reads text. Errors read "NAME:LINE:COLUMN: what is wrong". 0, -EINVAL, -ENOMEM; doc is untouched
 * on failure. */
int doc_load(struct doc *doc, const char *name, const char *text, size_t len, struct err *e);
void doc_done(struct doc *doc);

/* Sets e to "NAME:LINE:COLUMN: text" for a value of this tree; returns -EINVAL. */
int doc_error(const struct doc *doc, const json_t *at, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Checked access to an object's members. A missing or null member leaves *ret untouched and is
 * success for the doc_opt_ forms, an error for the doc_want_ forms; a member of another type is
 * always an error. The text of e names the member. Strings are borrowed from the tree and contain
 * no NUL. 0 or -EINVAL.
 */
int doc_want_string(const json_t *obj, const char *key, const char **ret, struct err *e);
int doc_opt_string(const json_t *obj, const char *key, const char **ret, struct err *e);
int doc_opt_bool(const json_t *obj, const char *key, bool *ret, struct err *e);
int doc_want_uint(const json_t *obj, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
		  struct err *e);
int doc_opt_uint(const json_t *obj, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
		 struct err *e);
int doc_want_array(const json_t *obj, const char *key, json_t **ret, struct err *e); /* borrowed */
int doc_opt_array(const json_t *obj, const char *key, json_t **ret, struct err *e);
int doc_want_object(const json_t *obj, const char *key, json_t **ret, struct err *e);
int doc_opt_object(const json_t *obj, const char *key, json_t **ret, struct err *e);

/* Fails with -EINVAL naming the first member of obj that is not in the NULL-terminated list. */
int doc_only(const json_t *obj, const char *const *known, struct err *e);
