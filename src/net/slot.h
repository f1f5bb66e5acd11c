/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot: a network namespace with one tap device and rules, and nothing else. No veth, no route,
 * no uplink. What the guest sends goes to the gateway's sockets, which were opened inside, or is
 * rejected at once. The namespace is held by descriptors alone, so that nothing is left when the
 * last of its processes is gone.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct slot {
	int netns_fd;
	int tap_fd; /* for the VMM; close it here once the VMM has it: the last close takes some 30
		       ms */
	int tcp_fd; /* listening, non-blocking: TCP to any address; SO_ORIGINAL_DST tells which */
	int dns_udp_fd; /* bound, non-blocking: redirected UDP port 53, the guest's packets to any
			   server */
	int dns_tcp_fd; /* listening, non-blocking: redirected TCP port 53 */
};

/* Makes one; no thread of the caller leaves its own namespace. 0, -errno with e set; nothing is
   left behind on failure. */
int slot_open(struct slot *ret, struct err *e);
void slot_close(struct slot *s); /* closes what is still open (-1 is skipped) */

/* Opens its three sockets for a gateway anew, for another gateway than the one that had them. Until
   those are closed everywhere the addresses are in use. 0, or -errno with e set and none open. */
int slot_listen(struct slot *s, struct err *e);

/* A non-blocking TCP socket inside the slot, connecting to the guest's port. The caller owns
 * ret_fd. 0 or -errno. */
int slot_connect(const struct slot *s, uint16_t port, int *ret_fd);

/* Packets that the rules turned away so far, by reason. 0 or -errno. */
struct slot_counters {
	uint64_t rejected; /* protocols and ports that don't pass */
	uint64_t spoofed;  /* wrong source address or MAC */
	uint64_t ipv6;
	uint64_t fragments;
};
int slot_counters(const struct slot *s, struct slot_counters *ret, struct err *e);
