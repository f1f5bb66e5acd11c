/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: an image, booted once for each size, frozen when its agent is ready and what tasks use
 * is in memory, before anybody told it who it is. Made when first needed; made anew when image,
 * monitor or host are not those it was made with, or when it is damaged.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "daemon/node.h"
#include "image/frozen.h"
#include "image/image.h"

#define TEMPLATE_NAME_SIZE 96

struct template_waiter {
	struct list link;
	/* It is there now (look again), or can't be made. Not called after template_cancel(). */
	void (*done)(void *user, const struct err *why);
	void *user;
};

/* "base-1c-512m". */
void template_name(const char *image, unsigned cpus, uint64_t memory_mib,
		   char out[TEMPLATE_NAME_SIZE]);

/* Opens the template of an image (whose struct is borrowed during the call) and a size: 1 with ret
   filled, verified. 0: it is being made or verified, w->done follows. -errno. */
int template_get(struct node *n, const struct image *img, unsigned cpus, uint64_t memory_mib,
		 struct frozen *ret, struct template_waiter *w, struct err *e);
void template_cancel(struct template_waiter *w);

/* One that looks whole, and yet no machine can be restored from it: it is removed, the next use
 * makes it anew. */
void template_distrust(struct node *n, const char *image, unsigned cpus, uint64_t memory_mib);

/* All templates and snapshots, as the API shows them. New reference. */
json_t *template_list_json(struct node *n, struct err *e);

/* One of them; NULL: none of that name. */
json_t *template_to_json(struct node *n, const char *name, struct err *e);

/* Removes a template or a snapshot. 0, -ENOENT, -EBUSY (being made), -errno. */
int template_remove(struct node *n, const char *name, struct err *e);

/* Removes templates that were not used for too long, or are too many (config), and what a dead
 * spaced was making. */
void template_collect(struct node *n);
