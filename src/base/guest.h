/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host and the guest agree on. Every slot looks the same from inside, so that all
 * of it is constant; 192.0.2.0/24 (RFC 5737) is never a real destination.
 */
#pragma once

#define GUEST_ADDRESS     "192.0.2.2"
#define GUEST_GATEWAY     "192.0.2.1" /* the slot's end of the tap; DNS answers here too */
#define GUEST_PREFIX_LEN  30
#define GUEST_MAC         "02:53:50:41:43:02"
#define GUEST_GATEWAY_MAC "02:53:50:41:43:01"
#define GUEST_INTERFACE   "eth0"
#define GUEST_AGENT_PORT  49983

/* Ports of the gateway's sockets in the slot; the slot's rules redirect to them. */
#define SLOT_TCP_PORT 15001
#define SLOT_DNS_PORT 15053

/* Names for allowed hosts: one address each. Source: RFC 2544 benchmarking range. */
#define SYNTHETIC_NET        "198.18.0.0"
#define SYNTHETIC_PREFIX_LEN 15

/* Where the node's CA is inside an image. */
#define GUEST_CA_FILE   "/usr/local/share/ca-certificates/space.crt"
#define GUEST_CA_BUNDLE "/etc/ssl/certs/ca-certificates.crt"

/* The agent writes this line to the console when its port is open. A hint to connect, not a proof.
 */
#define GUEST_READY_LINE "space-agent: ready"

/* Block devices, in the order in which the VMM attaches them. */
#define GUEST_ROOT_DEVICE    "/dev/vda" /* the image, read-only */
#define GUEST_SCRATCH_DEVICE "/dev/vdb" /* the sandbox's own ext4 */
