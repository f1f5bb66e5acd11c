/* SPDX-License-Identifier: Apache-2.0 */
/* Templates and snapshots on disk: what there is, what goes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/template.h"
#include "daemon/template_state.h"

#define DAY_MS     (UINT64_C(24) * 3600 * 1000)
#define MIB        (UINT64_C(1) << 20)
#define LISTED_MAX 4096

struct listing {
	struct node *node;
	json_t *all;
	const char *kind;
};

/* Whether the next use makes it anew: an image of that name and hash is what it was made from. */
static bool template_stale(const struct node *n, const struct frozen *f)
{
	const json_t *image = json_object_get(f->extra, "image");
	const char *name = json_string_value(json_object_get(image, "name"));
	struct image img;
	struct err e;
	if (!name || image_open(n->paths.images, name, &img, &e) < 0)
		return true;
	bool differs = template_differs(n, f->extra, img.hash);
	image_done(&img);
	return differs;
}

static void add_time(json_t *j, const char *key, uint64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];
	clock_rfc3339(wall_ms, text);
	json_object_set_new(j, key, json_string(text));
}

static void list_one(void *user, const char *name, const struct frozen *f, const struct err *bad)
{
	struct listing *l = user;
	const json_t *extra = f->extra;
	json_t *image = json_object_get(json_object_get(extra, "image"), "name");
	bool snapshot = str_eq(l->kind, "snapshot");
	bool stale =
		bad || (snapshot ? !vmm_fingerprint_fits(
					   json_string_value(json_object_get(extra, "fingerprint")),
					   l->node->fingerprint)
				 : template_stale(l->node, f));
	if (json_array_size(l->all) >= LISTED_MAX)
		return;
	json_t *j = json_pack("{s:s, s:s, s:I, s:b}", "name", name, "kind", l->kind, "sizeBytes",
			      (json_int_t)f->size_bytes, "stale", stale);
	json_object_set(j, "image", image ? image : json_null());
	json_object_set(j, "cpus", json_object_get(extra, "cpus"));
	json_object_set(j, "memoryMB", json_object_get(extra, "memoryMB"));
	if (bad)
		json_object_set_new(j, "problem", json_string(bad->text));
	add_time(j, "madeAt", f->made_ms);
	add_time(j, "usedAt", f->used_ms);
	json_array_append_new(l->all, j);
}

json_t *template_list_json(struct node *n, struct err *e)
{
	auto_json json_t *all = json_array();
	struct listing l = {n, all, "template"};
	int r = frozen_each(n->paths.templates, list_one, &l, e);
	l.kind = "snapshot";
	if (r == 0)
		r = frozen_each(n->paths.snapshots, list_one, &l, e);
	return r == 0 ? take_ptr(all) : NULL;
}

json_t *template_to_json(struct node *n, const char *name, struct err *e)
{
	auto_json json_t *all = template_list_json(n, e);
	json_t *one;
	size_t i;
	json_array_foreach(all, i, one) if (str_eq(json_string_value(json_object_get(one, "name")),
						   name)) return json_incref(one);
	return NULL;
}

int template_remove(struct node *n, const char *name, struct err *e)
{
	if (!str_is_name(name))
		return err_set(e, ENOENT, "no template or snapshot is called that");
	if (template_busy(n, name))
		return err_set(e, EBUSY, "template %s is being made", name);
	int r = frozen_remove(n->paths.snapshots, name, e);
	if (r == -ENOENT)
		r = frozen_remove(n->paths.templates, name, e);
	if (r == -ENOENT)
		return err_set(
			e, ENOENT,
			"no template or snapshot %s: 'space template ls' shows what there is",
			name);
	if (r == 0)
		r = audit_write(n->audit, NULL, "template.remove", json_pack("{s:s}", "name", name),
				e);
	return r;
}

void template_distrust(struct node *n, const char *image, unsigned cpus, uint64_t memory_mib)
{
	char name[TEMPLATE_NAME_SIZE];
	struct err e;
	template_name(image, cpus, memory_mib, name);
	log_warn("template %s is removed: no machine can be restored from it", name);
	if (!template_busy(n, name) && frozen_remove(n->paths.templates, name, &e) < 0)
		log_warn("%s", e.text);
}

/* -- what goes by itself -- */

struct candidate {
	char *name;
	uint64_t used_ms, size_bytes;
};

struct candidates {
	struct node *node;
	struct candidate *list;
	size_t count;
	uint64_t total;
};

static void add_candidate(void *user, const char *name, const struct frozen *f,
			  const struct err *bad)
{
	struct candidates *c = user;
	(void)bad;
	struct candidate *more = reallocarray(c->list, c->count + 1, sizeof(*more));
	if (!more || c->count >= LISTED_MAX)
		return;
	c->list = more;
	c->list[c->count++] = (struct candidate){strdup(name), f->used_ms, f->size_bytes};
	c->total += f->size_bytes;
}

static int by_last_use(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	return x->used_ms < y->used_ms ? -1 : x->used_ms > y->used_ms;
}

void template_collect(struct node *n)
{
	struct candidates c = {.node = n};
	struct err e;
	uint64_t now = clock_wall_ms(), max = n->config.template_max_mib * MIB;
	uint64_t age = n->config.template_age_days * DAY_MS;
	if (frozen_sweep(n->paths.templates, &e) < 0 || frozen_sweep(n->paths.snapshots, &e) < 0 ||
	    frozen_each(n->paths.templates, add_candidate, &c, &e) < 0)
		log_warn("%s", e.text);
	if (c.count)
		qsort(c.list, c.count, sizeof(*c.list), by_last_use);
	for (size_t i = 0; i < c.count; i++) {
		struct candidate *t = &c.list[i];
		bool old = t->used_ms + age < now;
		bool large = c.total > max;
		if ((old || large) && t->name && !template_busy(n, t->name)) {
			log_info("template %s is removed: %s", t->name,
				 old ? "it was not used for long" : "templates take too much room");
			if (frozen_remove(n->paths.templates, t->name, &e) == 0)
				c.total -= t->size_bytes;
			else
				log_warn("%s", e.text);
		}
		free(t->name);
	}
	free(c.list);
}
