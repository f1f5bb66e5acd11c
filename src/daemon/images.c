/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/images.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/ca.h"
#include "daemon/paths.h"
#include "image/image.h"

#define EXIT_SPACE 125

static int usage(void)
{
	log_error("usage: spaced image build NAME [--force] | ls [--json] | rm NAME");
	return EXIT_SPACE;
}

static int build(const struct paths *p, const char *name, bool force, struct err *e)
{
	auto_free char *recipe = str_printf("%s/%s", p->recipes, name);
	if (!recipe)
		return err_set(e, ENOMEM, "no memory");
	if (!str_is_name(name) || access(recipe, R_OK) < 0)
		return err_set(e, ENOENT, "no recipe for an image named %s in %s", name,
			       p->recipes);
	struct ca *ca = ca_open(p->ca, e);
	if (!ca)
		return -EIO;
	int r = image_build(p->images, recipe, name, ca_certificate(ca), force, e);
	ca_free(ca);
	return r;
}

static void list_line(void *user, const struct image *img)
{
	char built[CLOCK_RFC3339_SIZE];
	clock_rfc3339(img->built_ms, built);
	if (user)
		json_array_append_new(user,
				      json_pack("{s:s, s:s, s:I, s:s}", "name", img->name, "hash",
						img->hash, "sizeBytes", (json_int_t)img->size_bytes,
						"builtAt", built));
	else
		printf("%-16s %.12s %8ju MiB  %s\n", img->name, img->hash,
		       (uintmax_t)(img->size_bytes >> 20), built);
}

static int list(const struct paths *p, bool json, struct err *e)
{
	auto_json json_t *all = json ? json_array() : NULL;
	if (!json)
		printf("%-16s %-12s %12s  %s\n", "NAME", "HASH", "SIZE", "BUILT");
	int r = image_each(p->images, list_line, all, e);
	if (r == 0 && json) {
		auto_free char *text = json_dumps(all, JSON_INDENT(2));
		puts(text ? text : "[]");
	}
	return r;
}

int images_command(int argc, char **argv)
{
	struct paths p;
	struct err e;
	const char *verb = argc > 0 ? argv[0] : "";
	const char *first = argc > 1 ? argv[1] : NULL;
	const char *second = argc > 2 ? argv[2] : NULL;
	if (argc > 3)
		return usage();
	int r = paths_init(&p, &e);
	if (r == 0) {
		if (str_eq(verb, "build") && first && *first != '-' &&
		    (!second || str_eq(second, "--force")))
			r = build(&p, first, second != NULL, &e);
		else if (str_eq(verb, "ls") && !second && (!first || str_eq(first, "--json")))
			r = list(&p, first != NULL, &e);
		else if (str_eq(verb, "rm") && first && !second)
			r = image_remove(p.images, first, &e);
		else
			r = 1;
	}
	paths_done(&p);
	if (r > 0)
		return usage();
	if (r < 0)
		log_error("%s", e.text);
	return r < 0 ? EXIT_SPACE : 0;
}
