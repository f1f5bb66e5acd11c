/* SPDX-License-Identifier: Apache-2.0 */
/* Between place.c and place_adopt.c. */
#pragma once

#include "daemon/place.h"

enum {
	PLACE_VMM_UID,
	PLACE_GATEWAY_UID,
};

extern const struct vmm_events place_vmm_events;
extern const struct gateway_ops place_gateway_ops;

uid_t place_uid(const struct place *p, unsigned which);

/* Kills the processes that a record of place_to_json() names, those that still are what they were. */
void place_end_recorded(const struct node *n, const json_t *record);

/* A bare one, without a seat; id NULL: a new one. NULL: no memory. */
struct place *place_new(struct node *n, const char *id, const struct place_ops *ops, void *user);
