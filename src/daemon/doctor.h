/* SPDX-License-Identifier: Apache-2.0 */
/* What this host offers, what is missing, what to do about it. */
#pragma once

#include <stdbool.h>

/* Looks and prints, a line each or one JSON document. 0 when sandboxes can run here, else 1. */
int doctor(bool json);

/* Prints how monitors and gateways are confined, step by step, as the next start would do it. 0, or
 * 1 when they can't be. */
int doctor_jail(void);
