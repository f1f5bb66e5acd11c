/* SPDX-License-Identifier: Apache-2.0 */
/* Where a message lies while it is read that may hold secrets: not dumped, not swapped where that
 * can be had, wiped afterwards. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define INBOX_MAX (512UL * 1024) /* bytes of one message */

/* Zero-initialised is empty. */
struct inbox {
	char *text; /* of the last message; no NUL behind it */
};

/* Receives a message from a SOCK_SEQPACKET socket; as fd_recv(), and -ENOMEM. */
ssize_t inbox_recv(struct inbox *in, int fd, int *fds, size_t *ret_nfds);

/* Wipes the message of n bytes. */
void inbox_wipe(struct inbox *in, size_t n);
void inbox_done(struct inbox *in);
