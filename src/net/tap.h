/* SPDX-License-Identifier: Apache-2.0 */
/* The tap device of a slot. Both calls work in the calling thread's network namespace. */
#pragma once

#include "base/err.h"

#define TAP_NAME "tap0"

/* Makes the device, down and gone with its descriptor. Ethernet frames behind a virtio_net_hdr of
   10 bytes, until the VMM sets another. Non-blocking. 0 or -errno; the caller owns ret_fd. */
int tap_open(int *ret_fd, struct err *e);

/* Gives it the gateway's MAC and address, the guest's place in the neighbour table, and sets it up.
 */
int tap_set_up(struct err *e);
