/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's one network interface. Its addresses are the same in every slot. */
#pragma once

#include "base/err.h"

/* 1 when an interface besides the loopback is there, 0 when not, -errno. */
int network_present(void);

/* Brings loopback and interface up with the guest's address and the slot's gateway as the way out.
 * 0 or -errno with e set. */
int network_up(struct err *e);
