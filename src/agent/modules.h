/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel modules of the initramfs. */
#pragma once

#include "base/err.h"

/*
 * Loads the files that dir/order names, one a line, in that order. One that fails is a warning:
 * what depends on it will be missed by name. A missing order is no error: all may be built in. 0 or
 * -errno.
 */
int modules_load(const char *dir, struct err *e);
