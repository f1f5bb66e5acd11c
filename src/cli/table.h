/* SPDX-License-Identifier: Apache-2.0 */
/* Lists for people: columns as wide as what stands in them, and how sizes, ages and names are
 * written there. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/doc.h"

struct table {
	const char *const *titles; /* borrowed */
	size_t columns, rows;
	char **cells; /* rows * columns heap strings, row by row; NULL is shown as nothing */
};

/* Empty cells, which the caller fills. 0, -ENOMEM. */
int table_init(struct table *t, const char *const *titles, size_t columns, size_t rows);
char **table_row(struct table *t, size_t row);
void table_print(const struct table *t);
void table_done(struct table *t);

/* What a member holds, as a heap string; "-" when it is missing. NULL: no memory. */
char *table_text(const json_t *obj, const char *key); /* safe for a terminal */
char *table_number(const json_t *obj, const char *key, const char *unit);
char *table_age(const json_t *obj, const char *key);  /* since an RFC 3339 time: "5m" */
char *table_left(const json_t *obj, const char *key); /* until such a time: "5m", "over" */
char *table_size(const json_t *obj, const char *key);
char *table_list(const json_t *obj, const char *key); /* of strings: "a,b", safe for a terminal */

/* "0 B", "340 kB", "12.5 MB": three digits say enough. */
#define TABLE_SIZE_MAX 24
void table_format_size(uint64_t bytes, char out[TABLE_SIZE_MAX]);
