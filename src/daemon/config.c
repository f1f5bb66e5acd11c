/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "vmm/vmm.h"

#define FILE_MAX            (256u << 10) /* bytes */
#define AGE_MAX_DAYS        36500
#define SIZE_MAX_MIB        (1u << 30)
#define SECONDS_MAX         (100u * 365 * 24 * 3600)
#define POOL_MEMORY_DEFAULT 512 /* MiB, as `space run` has it */

void config_defaults(struct config *c)
{
	*c = (struct config){
		.ready = 2,
		.memory_reserve_mib = 512,
		.template_age_days = 30,
		.template_max_mib = 16384,
		.compress_after_s = 3600,
	};
}

void config_done(struct config *c)
{
	for (size_t i = 0; i < c->pool_count; i++)
		free(c->pools[i].image);
	c->pool_count = 0;
}

static int parse_pool(struct config *c, const char *image, const json_t *j, struct err *e)
{
	static const char *const known[] = {"size", "cpus", "memoryMB", NULL};
	struct config_pool *p = &c->pools[c->pool_count];
	uint64_t size = 0, cpus = 1, memory = POOL_MEMORY_DEFAULT;
	if (!str_is_name(image))
		return err_set(e, EINVAL, "no name of an image");
	if (!json_is_object(j))
		return err_set(e, EINVAL, "must be an object, as in {size: 4}");
	int r = doc_only(j, known, e);
	if (r == 0)
		r = doc_want_uint(j, "size", 0, CONFIG_POOL_MAX, &size, e);
	if (r == 0)
		r = doc_opt_uint(j, "cpus", 1, VMM_CPUS_MAX, &cpus, e);
	if (r == 0)
		r = doc_opt_uint(j, "memoryMB", VMM_RAM_MIN_MIB, VMM_RAM_MAX_MIB, &memory, e);
	if (r < 0)
		return r;
	*p = (struct config_pool){.image = strdup(image),
				  .size = (unsigned)size,
				  .cpus = (unsigned)cpus,
				  .memory_mib = memory};
	if (!p->image)
		return err_set(e, ENOMEM, "no memory");
	c->pool_count++;
	return 0;
}

static int parse_pools(struct config *c, const struct doc *doc, struct err *e)
{
	json_t *pools = NULL, *pool;
	const char *image;
	int r = doc_opt_object(doc->root, "pool", &pools, e);
	if (r < 0)
		return doc_error(doc, json_object_get(doc->root, "pool"), e, "%s", e->text);
	json_object_foreach(pools, image, pool)
	{
		struct err why;
		if (c->pool_count == CONFIG_POOLS_MAX)
			return doc_error(doc, pool, e, "more than %d pools", CONFIG_POOLS_MAX);
		r = parse_pool(c, image, pool, &why);
		if (r < 0)
			return doc_error(doc, pool, e, "pool %s: %s", image, why.text);
	}
	return 0;
}

static int parse_templates(struct config *c, const json_t *root, struct err *e)
{
	static const char *const known[] = {"maxAgeDays", "maxMB", NULL};
	json_t *j = NULL;
	int r = doc_opt_object(root, "templates", &j, e);
	if (r < 0 || !j)
		return r;
	r = doc_only(j, known, e);
	if (r == 0)
		r = doc_opt_uint(j, "maxAgeDays", 1, AGE_MAX_DAYS, &c->template_age_days, e);
	if (r == 0)
		r = doc_opt_uint(j, "maxMB", 1, SIZE_MAX_MIB, &c->template_max_mib, e);
	return r < 0 ? err_prefix(e, "templates") : 0;
}

static int parse_root(struct config *c, const struct doc *doc, struct err *e)
{
	static const char *const known[] = {"ready",     "pool",          "memoryReserveMB",
					    "templates", "compressAfter", NULL};
	struct err why = {0};
	uint64_t ready = c->ready;
	if (json_is_null(doc->root))
		return 0;
	if (!json_is_object(doc->root))
		return doc_error(doc, doc->root, e, "must be an object");
	int r = doc_only(doc->root, known, &why);
	if (r == 0)
		r = doc_opt_uint(doc->root, "ready", 0, CONFIG_READY_MAX, &ready, &why);
	if (r == 0)
		r = doc_opt_uint(doc->root, "memoryReserveMB", 0, SIZE_MAX_MIB,
				 &c->memory_reserve_mib, &why);
	if (r == 0)
		r = doc_opt_uint(doc->root, "compressAfter", 0, SECONDS_MAX, &c->compress_after_s,
				 &why);
	if (r == 0)
		r = parse_templates(c, doc->root, &why);
	if (r < 0)
		return doc_error(doc, doc->root, e, "%s", why.text);
	c->ready = (unsigned)ready;
	return parse_pools(c, doc, e);
}

int config_parse(struct config *c, const char *name, const char *text, size_t len, struct err *e)
{
	struct doc doc;
	if (strspn(text, " \t\r\n") == len)
		return 0;
	int r = doc_load(&doc, name, text, len, e);
	if (r < 0)
		return r;
	r = parse_root(c, &doc, e);
	doc_done(&doc);
	return r;
}

int config_load(struct config *c, const char *path, struct err *e)
{
	auto_free char *text = NULL;
	size_t len;
	int r = file_read(path, FILE_MAX, &text, &len);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_sys(e, -r, "can't read %s", path);
	return config_parse(c, path, text, len, e);
}
