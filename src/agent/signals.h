/* SPDX-License-Identifier: Apache-2.0 */
/* Signals by the names that the protocol and people use. */
#pragma once

#include "base/doc.h"

#define SIGNAL_MAX 64

/* The number for "SIGNAL_SIGTERM", "SIGTERM" or "TERM", or for a JSON integer. 1 .. 64, or -EINVAL.
 */
int signal_from_json(const json_t *value);

/* What a report calls the signal: "killed", "terminated", "signal 40"; into out. */
#define SIGNAL_TEXT_SIZE 32
void signal_text(int number, char out[SIGNAL_TEXT_SIZE]);
