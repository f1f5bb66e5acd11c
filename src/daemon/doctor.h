/* SPDX-License-Identifier: Apache-2.0 */
/* What this host offers, what is missing, what to do about it. */
#pragma once

#include <stdbool.h>

/* Looks and prints, a line each or one JSON document. 0 when sandboxes can run here, else 1. */
int doctor(bool json);
