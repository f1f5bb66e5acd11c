/* SPDX-License-Identifier: Apache-2.0 */
/* The socket at which the next spaced calls. */
#pragma once

#include <stdbool.h>

/* Whether fd is a socket that listens. */
bool door_listens(int fd);

/* A connection of root or of our own uid; whoever else calls is turned away. A descriptor, or
 * -errno.
 */
int door_accept(int fd);
