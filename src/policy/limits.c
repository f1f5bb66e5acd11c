/* SPDX-License-Identifier: Apache-2.0 */
/* Limits in documents. A limit of 0 would look like none: who wants nothing to pass denies it. */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "policy/entry.h"

struct limit {
	const char *name;
	size_t at;
	bool bytes;
};

#define LIMIT(name, member, bytes)                                  \
	{                                                           \
		name, offsetof(struct policy_limits, member), bytes \
	}

static const struct limit limits[] = {
	LIMIT("requests", requests, false),
	LIMIT("requestsPerMinute", requests_per_minute, false),
	LIMIT("connections", connections, false),
	LIMIT("bytesUp", bytes_up, true),
	LIMIT("bytesDown", bytes_down, true),
	LIMIT("bodyBytes", body_bytes, true),
	LIMIT("lifetimeSeconds", lifetime_s, false),
};

#define LIMIT_COUNT (sizeof(limits) / sizeof(limits[0]))
#define LIMIT_NAMES                                                                 \
	"requests, requestsPerMinute, connections, bytesUp, bytesDown, bodyBytes, " \
	"lifetimeSeconds"

int read_limits(const struct entry *at, struct policy_limits *ret)
{
	const char *known[LIMIT_COUNT + 1] = {0};
	for (size_t i = 0; i < LIMIT_COUNT; i++)
		known[i] = limits[i].name;
	int r = entry_check(at, known, LIMIT_NAMES);
	if (r < 0)
		return r;
	for (size_t i = 0; i < LIMIT_COUNT; i++) {
		const struct limit *limit = &limits[i];
		const json_t *j = entry_get(at, limit->name);
		uint64_t value = 0;
		if (!j)
			continue;
		if (json_is_integer(j) && json_integer_value(j) > 0)
			value = (uint64_t)json_integer_value(j);
		else if (!limit->bytes || !item_string(j) ||
			 str_to_bytes(item_string(j), &value) < 0)
			return entry_error(at, limit->name,
					   limit->bytes ? "must be a number of bytes from 1 up, or "
							  "one with kB, MB or GB behind it"
							: "must be a number from 1 up");
		memcpy((char *)ret + limit->at, &value, sizeof(value));
	}
	return 0;
}

json_t *limits_to_json(const struct policy_limits *from)
{
	json_t *j = NULL;
	for (size_t i = 0; i < LIMIT_COUNT; i++) {
		uint64_t value;
		memcpy(&value, (const char *)from + limits[i].at, sizeof(value));
		if (!value)
			continue;
		if (!j)
			j = json_object();
		json_object_set_new(j, limits[i].name, json_integer((json_int_t)value));
	}
	return j;
}
