/* SPDX-License-Identifier: Apache-2.0 */
/* The packet rules of a slot. Both calls work in the calling thread's network namespace; e is not
 * NULL. */
#pragma once

#include "net/slot.h"

/* Loads the rules, all or none; the tap device must exist. 0 or -errno. */
int rules_load(struct err *e);

int rules_counters(struct slot_counters *ret, struct err *e);
