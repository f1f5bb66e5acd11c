/* SPDX-License-Identifier: Apache-2.0 */
/* The content address of an image: one hash of all that its build is told. */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define ADDRESS_HEX_SIZE 65 /* with the NUL */

struct address_inputs {
	const char *recipe_dir; /* every file in it counts, with name and executable bit */
	const char *ca_pem;
	const char *agent;   /* path of the guest's init */
	uint64_t generation; /* of forced rebuilds of the same inputs */
};

/* Package versions are not inputs: a rebuild for newer ones is a new generation. 0 or a negative
 * errno with e set. */
int address_of(const struct address_inputs *in, char ret[ADDRESS_HEX_SIZE], struct err *e);
