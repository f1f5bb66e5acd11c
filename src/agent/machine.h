/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual machine as a whole: what POST /init changes in it. Only for the agent that is PID 1.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define MACHINE_TIME_MAX_NS 7258118400000000000 /* the year 2200: no host's clock is past it */

/* Whether a clock that shows now_ns is to be set when the host's has shown host_ns a moment ago:
   being behind is certain, being ahead may be that moment. Both since 1970, 0 to
   MACHINE_TIME_MAX_NS. */
bool machine_clock_is_off(int64_t now_ns, int64_t host_ns);

/* Sets the clock to host_ns when it is off. 0 or -errno with e set. */
int machine_set_clock(int64_t host_ns, struct err *e);

/* Adds entropy, counted in full, and makes the generator use it at once. */
int machine_add_entropy(const uint8_t *p, size_t n, struct err *e);

/* Sets the kernel's host name, /etc/hostname and /etc/hosts. */
int machine_set_hostname(const char *name, struct err *e);

/* Makes address the one name server. */
int machine_set_resolver(const char *address, struct err *e);

#define MACHINE_ID_MODE 0444 /* of /etc/machine-id */

/* Writes /etc/machine-id. */
int machine_set_id(const char *id, struct err *e);

/* Ends the machine. Does not return. */
void machine_off(void) __attribute__((noreturn));
