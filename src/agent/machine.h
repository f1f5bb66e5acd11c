/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual machine as a whole: what POST /init changes in it. Only for the agent that is PID 1.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Sets the clock when it is more than 50 ms behind or 5 s ahead of the host's. 0 or -errno with e
 * set. */
int machine_set_clock(int64_t wall_ns, struct err *e);

/* Adds entropy, counted in full, and makes the generator use it at once. */
int machine_add_entropy(const uint8_t *p, size_t n, struct err *e);

/* Sets the kernel's host name, /etc/hostname and /etc/hosts. */
int machine_set_hostname(const char *name, struct err *e);

/* Makes address the one name server. */
int machine_set_resolver(const char *address, struct err *e);

/* Writes /etc/machine-id. */
int machine_set_id(const char *id, struct err *e);

/* Ends the machine. Does not return. */
void machine_off(void) __attribute__((noreturn));
