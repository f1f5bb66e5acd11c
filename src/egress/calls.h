/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that a gateway makes. */
#pragma once

#include "base/calls.h"

/* Fills ret, to be released with calls_done(). 0 or -errno with e set. */
int egress_calls(struct calls_filter *ret, struct err *e);
