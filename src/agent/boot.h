/* SPDX-License-Identifier: Apache-2.0 */
/* From the initramfs to the root file system of the sandbox. docs/internals/guest.md tells the
 * whole story. */
#pragma once

#include "base/err.h"

/*
 * For PID 1: loads the modules of the initramfs, brings the network up, joins image and scratch
 * disk and makes the result the root. Standard descriptors are the console afterwards. 0 or -errno
 * with e set.
 */
int boot(struct err *e);
