/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept ready: prepared places, which belong to nothing yet, and pools of warm sandboxes, restored
 * from their template and paused, which belong to nobody yet. Refilled one by one while nothing starts; drained when the
 * host's memory gets short.
 */
#pragma once

#include "daemon/node.h"
#include "daemon/place.h"
#include "image/image.h"

struct ready;

/* Starts keeping; the first places come from the loop. NULL with e set. */
struct ready *ready_new(struct node *n, struct err *e);

/* Lets everything go, for the end of the node: places die with their handlers unheard. */
void ready_stop(struct node *n);

/* Something started, ended or was made: have a look soon. */
void ready_poke(struct node *n);

/* A prepared place (for vmm_restore()), the caller's from now on; hand it over at once. NULL: none is ready. */
struct place *ready_take(struct node *n);

/* A warm sandbox of exactly this image and size: its machine is restored and paused, its agent has no
   instructions yet. NULL: none. */
struct place *ready_take_warm(struct node *n, const struct image *img, unsigned cpus,
			      uint64_t memory_mib);

/* What is there, for `doctor` and tests: new reference. */
json_t *ready_to_json(const struct node *n);
