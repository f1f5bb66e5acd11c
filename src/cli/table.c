/* SPDX-License-Identifier: Apache-2.0 */
/* Columns. Widths are in bytes: names are ASCII, and what is not stands in the last column. */
#include "cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/text.h"

#define LIST_MAX 65536 /* bytes of a list in a cell */

int table_init(struct table *t, const char *const *titles, size_t columns, size_t rows)
{
	*t = (struct table){.titles = titles, .columns = columns, .rows = rows};
	t->cells = calloc(rows * columns + 1, sizeof(*t->cells));
	return t->cells ? 0 : -ENOMEM;
}

char **table_row(struct table *t, size_t row)
{
	return t->cells + row * t->columns;
}

static size_t column_width(const struct table *t, size_t column)
{
	size_t width = strlen(t->titles[column]);
	for (size_t row = 0; row < t->rows; row++) {
		const char *cell = t->cells[row * t->columns + column];
		size_t n = cell ? strlen(cell) : 0;
		width = n > width ? n : width;
	}
	return width;
}

void table_print(const struct table *t)
{
	auto_free size_t *width = calloc(t->columns, sizeof(*width));
	for (size_t c = 0; width && c + 1 < t->columns; c++) /* nothing is aligned to the last */
		width[c] = column_width(t, c);
	for (size_t row = 0; row <= t->rows; row++)
		for (size_t c = 0; c < t->columns; c++) {
			const char *cell =
				row ? t->cells[(row - 1) * t->columns + c] : t->titles[c];
			printf("%-*s%s", width ? (int)width[c] : 0, cell ? cell : "",
			       c + 1 < t->columns ? "  " : "\n");
		}
}

void table_done(struct table *t)
{
	for (size_t i = 0; t->cells && i < t->rows * t->columns; i++)
		free(t->cells[i]);
	free(t->cells);
	t->cells = NULL;
}

char *table_text(const json_t *obj, const char *key)
{
	const char *s = json_string_value(json_object_get(obj, key));
	return text_safe(s ? s : "-", s ? strlen(s) : 1);
}

char *table_number(const json_t *obj, const char *key, const char *unit)
{
	const json_t *n = json_object_get(obj, key);
	return json_is_integer(n) ? str_printf("%lld%s", (long long)json_integer_value(n), unit)
				  : strdup("-");
}

/* Seconds from now to an RFC 3339 time, negative when it is past. False: it is none. */
static bool seconds_to(const json_t *obj, const char *key, int64_t *ret)
{
	struct tm tm = {0};
	const char *s = json_string_value(json_object_get(obj, key));
	if (!s || !strptime(s, "%Y-%m-%dT%H:%M:%S", &tm))
		return false;
	*ret = timegm(&tm) - (int64_t)(clock_wall_ms() / 1000);
	return true;
}

static char *format_seconds(int64_t s)
{
	if (s < 120)
		return str_printf("%llds", (long long)s);
	if (s < 2 * 3600)
		return str_printf("%lldm", (long long)s / 60);
	return s < 2 * 86400 ? str_printf("%lldh", (long long)s / 3600)
			     : str_printf("%lldd", (long long)s / 86400);
}

char *table_age(const json_t *obj, const char *key)
{
	int64_t left;
	if (!seconds_to(obj, key, &left))
		return strdup("-");
	return format_seconds(left < 0 ? -left : 0);
}

char *table_left(const json_t *obj, const char *key)
{
	int64_t left;
	if (!seconds_to(obj, key, &left))
		return strdup("-");
	return left <= 0 ? strdup("over") : format_seconds(left);
}

char *table_list(const json_t *obj, const char *key)
{
	auto_buf struct buf line;
	buf_init(&line, LIST_MAX);
	size_t i;
	json_t *word;
	json_array_foreach(json_object_get(obj, key), i, word)
	{
		if (json_is_string(word) &&
		    buf_printf(&line, "%s%s", line.len ? "," : "", json_string_value(word)) < 0)
			break;
	}
	return line.len ? text_safe((const char *)line.data, line.len) : strdup("-");
}

char *table_size(const json_t *obj, const char *key)
{
	char text[TABLE_SIZE_MAX];
	uint64_t bytes = UINT64_MAX;
	if (doc_opt_uint(obj, key, 0, INT64_MAX, &bytes, NULL) < 0 || bytes == UINT64_MAX)
		return strdup("-");
	table_format_size(bytes, text);
	return strdup(text);
}

void table_format_size(uint64_t bytes, char out[TABLE_SIZE_MAX])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	double n = (double)bytes;
	size_t unit = 0;
	while (n >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		n /= 1000;
		unit++;
	}
	snprintf(out, TABLE_SIZE_MAX, "%.*f %s", unit && n < 99.95 ? 1 : 0, n, units[unit]);
}
