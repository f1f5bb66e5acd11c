/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that a monitor makes. */
#pragma once

#include "base/calls.h"
#include "vmm/vmm.h"

/* Compiled once for each of both. NULL with e set; not to be freed. */
const struct calls_filter *qemu_calls(enum vmm_accel accel, struct err *e);
