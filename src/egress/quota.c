/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry for the sandbox and one for each rule; whatever is charged is charged to both, or, when
 * either has no room, to none. Entries are counted, so that what began under a policy can be ended
 * under the next.
 *
 * The rate is a bucket of a minute's requests, which fills evenly. Its level is in shares: a
 * request costs a minute of them, and each millisecond brings as many as requests are allowed in a
 * minute.
 */
#include "egress/quota.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define MINUTE_MS 60000U

struct quota_entry {
	unsigned refs;
	const char *whose;
	struct policy_limits limits;
	uint64_t requests, bytes[2], open;
	uint64_t level; /* of the bucket, in shares */
	uint64_t filled_ms;
	uint64_t since_ms;
};

struct quotas {
	struct quota_entry *sandbox;
	struct quota_entry **rules;
	size_t count;
};

static bool refuse(struct quota_excess *e, unsigned status, const char *limit, uint64_t value,
		   const struct quota_entry *entry)
{
	e->status = status;
	e->limit = limit;
	snprintf(e->reason, sizeof(e->reason), "over the limit '%s: %llu' of %s", limit,
		 (unsigned long long)value, entry->whose);
	return false;
}

/* -- the bucket -- */

static uint64_t bucket_size(const struct policy_limits *l)
{
	uint64_t size;
	return __builtin_mul_overflow(l->requests_per_minute, MINUTE_MS, &size) ? UINT64_MAX : size;
}

static void bucket_fill(struct quota_entry *entry, uint64_t now_ms)
{
	uint64_t size = bucket_size(&entry->limits), passed = now_ms - entry->filled_ms, more;
	if (passed >= MINUTE_MS ||
	    __builtin_mul_overflow(passed, entry->limits.requests_per_minute, &more) ||
	    __builtin_add_overflow(entry->level, more, &more) || more > size)
		more = size;
	entry->level = more;
	entry->filled_ms = now_ms;
}

/* -- entries -- */

static struct quota_entry *entry_new(const char *whose, uint64_t now_ms)
{
	struct quota_entry *entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	entry->refs = 1;
	entry->whose = whose;
	entry->filled_ms = entry->since_ms = now_ms;
	return entry;
}

static void entry_put(struct quota_entry *entry)
{
	if (entry && --entry->refs == 0)
		free(entry);
}

/* The rate starts with a full bucket, but what an old policy has taken out stays out. */
static void entry_set(struct quota_entry *entry, const struct policy_limits *limits,
		      uint64_t now_ms)
{
	bool fresh = !entry->limits.requests_per_minute;
	if (!fresh)
		bucket_fill(entry, now_ms);
	entry->limits = *limits;
	entry->since_ms = now_ms;
	entry->filled_ms = now_ms;
	if (fresh || entry->level > bucket_size(limits))
		entry->level = bucket_size(limits);
}

static bool over(uint64_t limit, uint64_t used, uint64_t more)
{
	return limit && (used > limit || more > limit - used);
}

static uint64_t end_ms(const struct quota_entry *entry)
{
	uint64_t end;
	if (!entry->limits.lifetime_s)
		return UINT64_MAX;
	if (__builtin_mul_overflow(entry->limits.lifetime_s, (uint64_t)1000, &end) ||
	    __builtin_add_overflow(end, entry->since_ms, &end))
		return UINT64_MAX;
	return end;
}

static bool entry_alive(const struct quota_entry *entry, uint64_t now_ms, struct quota_excess *e)
{
	if (!entry || now_ms < end_ms(entry))
		return true;
	return refuse(e, 403, "lifetimeSeconds", entry->limits.lifetime_s, entry);
}

static bool entry_has_room(const struct quota_entry *entry, struct quota_excess *e)
{
	if (entry && over(entry->limits.connections, entry->open, 1))
		return refuse(e, 429, "connections", entry->limits.connections, entry);
	return true;
}

static bool entry_may_begin(struct quota_entry *entry, uint64_t now_ms, struct quota_excess *e)
{
	if (!entry)
		return true;
	const struct policy_limits *l = &entry->limits;
	if (!entry_alive(entry, now_ms, e))
		return false;
	if (over(l->requests, entry->requests, 1))
		return refuse(e, 403, "requests", l->requests, entry);
	if (over(l->bytes_up, entry->bytes[QUOTA_UP], 1))
		return refuse(e, 403, "bytesUp", l->bytes_up, entry);
	if (over(l->bytes_down, entry->bytes[QUOTA_DOWN], 1))
		return refuse(e, 403, "bytesDown", l->bytes_down, entry);
	if (!entry_has_room(entry, e))
		return false;
	bucket_fill(entry, now_ms);
	if (l->requests_per_minute && entry->level < MINUTE_MS)
		return refuse(e, 429, "requestsPerMinute", l->requests_per_minute, entry);
	return true;
}

static void entry_begin(struct quota_entry *entry)
{
	if (!entry)
		return;
	entry->requests++;
	entry->open++;
	if (entry->limits.requests_per_minute)
		entry->level -= MINUTE_MS;
}

static bool entry_may_pass(const struct quota_entry *entry, enum quota_way way, uint64_t n,
			   struct quota_excess *e)
{
	if (!entry)
		return true;
	uint64_t limit = way == QUOTA_UP ? entry->limits.bytes_up : entry->limits.bytes_down;
	if (!over(limit, entry->bytes[way], n))
		return true;
	return refuse(e, 403, way == QUOTA_UP ? "bytesUp" : "bytesDown", limit, entry);
}

static bool entry_takes_body(const struct quota_entry *entry, uint64_t had, uint64_t n,
			     struct quota_excess *e)
{
	if (!entry || !over(entry->limits.body_bytes, had, n))
		return true;
	return refuse(e, 413, "bodyBytes", entry->limits.body_bytes, entry);
}

/* -- the set -- */

struct quotas *quotas_new(void)
{
	struct quotas *q = calloc(1, sizeof(*q));
	if (q)
		q->sandbox = entry_new("the sandbox", 0);
	if (q && !q->sandbox) {
		free(q);
		return NULL;
	}
	return q;
}

static void rules_put(struct quota_entry **rules, size_t count)
{
	for (size_t i = 0; i < count; i++)
		entry_put(rules[i]);
	free(rules);
}

void quotas_free(struct quotas *q)
{
	if (!q)
		return;
	rules_put(q->rules, q->count);
	entry_put(q->sandbox);
	free(q);
}

int quotas_set(struct quotas *q, const struct policy *p, uint64_t now_ms)
{
	size_t count = policy_rule_count(p), made = 0;
	struct quota_entry **rules = calloc(count ? count : 1, sizeof(struct quota_entry *));
	while (rules && made < count && (rules[made] = entry_new("the rule", now_ms))) {
		entry_set(rules[made], policy_limits(p, made), now_ms);
		made++;
	}
	if (!rules || made < count) {
		if (rules)
			rules_put(rules, made);
		return -ENOMEM;
	}
	rules_put(q->rules, q->count);
	q->rules = rules;
	q->count = count;
	entry_set(q->sandbox, policy_limits(p, POLICY_NO_RULE), now_ms);
	return 0;
}

uint64_t quotas_next_end_ms(const struct quotas *q, uint64_t now_ms)
{
	uint64_t next = end_ms(q->sandbox);
	if (next <= now_ms)
		return 0; /* all has ended */
	for (size_t i = 0; i < q->count; i++) {
		uint64_t end = end_ms(q->rules[i]);
		if (end > now_ms && end < next)
			next = end;
	}
	return next == UINT64_MAX ? 0 : next - now_ms;
}

/* -- holds -- */

static struct quota_entry *rule_entry(const struct quotas *q, size_t rule)
{
	return rule < q->count ? q->rules[rule] : NULL;
}

bool quota_begin(struct quotas *q, size_t rule, uint64_t now_ms, struct quota_hold *h,
		 struct quota_excess *e)
{
	struct quota_entry *entry = rule_entry(q, rule);
	*h = (struct quota_hold){0};
	if (!entry_may_begin(entry, now_ms, e) || !entry_may_begin(q->sandbox, now_ms, e))
		return false;
	entry_begin(entry);
	entry_begin(q->sandbox);
	if (entry)
		entry->refs++;
	h->all = q;
	h->rule = entry;
	return true;
}

void quota_end(struct quota_hold *h)
{
	if (!h->all)
		return;
	h->all->sandbox->open--;
	if (h->rule)
		h->rule->open--;
	entry_put(h->rule);
	*h = (struct quota_hold){0};
}

bool quota_fits(const struct quota_hold *h, uint64_t n, struct quota_excess *e)
{
	if (!h->all)
		return true;
	return entry_takes_body(h->rule, h->body, n, e) &&
	       entry_takes_body(h->all->sandbox, h->body, n, e) &&
	       entry_may_pass(h->rule, QUOTA_UP, n, e) &&
	       entry_may_pass(h->all->sandbox, QUOTA_UP, n, e);
}

bool quota_charge(struct quota_hold *h, enum quota_way way, uint64_t n, struct quota_excess *e)
{
	if (!h->all)
		return true;
	if (!entry_may_pass(h->rule, way, n, e) || !entry_may_pass(h->all->sandbox, way, n, e))
		return false;
	if (h->rule)
		h->rule->bytes[way] += n;
	h->all->sandbox->bytes[way] += n;
	return true;
}

bool quota_charge_body(struct quota_hold *h, uint64_t n, struct quota_excess *e)
{
	if (!quota_fits(h, n, e) || !quota_charge(h, QUOTA_UP, n, e))
		return false;
	h->body += n;
	return true;
}

bool quota_alive(const struct quota_hold *h, uint64_t now_ms, struct quota_excess *e)
{
	return !h->all ||
	       (entry_alive(h->rule, now_ms, e) && entry_alive(h->all->sandbox, now_ms, e));
}

bool quota_move(struct quota_hold *h, size_t rule, struct quota_excess *e)
{
	if (!h->all)
		return true;
	struct quota_entry *entry = rule_entry(h->all, rule);
	if (entry == h->rule)
		return true;
	if (!entry_has_room(entry, e) || !entry_takes_body(entry, h->body, 0, e))
		return false;
	if (entry) {
		entry->refs++;
		entry->open++;
	}
	if (h->rule)
		h->rule->open--;
	entry_put(h->rule);
	h->rule = entry;
	return true;
}
