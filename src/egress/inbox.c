/* SPDX-License-Identifier: Apache-2.0 */
/* One mapping, made when first needed. Acknowledgements need a page of it; what a longer message
 * took is given back. */
#include "egress/inbox.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"

#define KEEP 4096 /* bytes of a message, past which the memory is not kept */

static char *inbox_map(void)
{
	void *p = mmap(NULL, INBOX_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, INBOX_MAX, MADV_DONTDUMP);
	(void)mlock2(p, INBOX_MAX, MLOCK_ONFAULT);
	return p;
}

ssize_t inbox_recv(struct inbox *in, int fd, int *fds, size_t *ret_nfds)
{
	size_t room = *ret_nfds;
	if (!in->text)
		in->text = inbox_map();
	if (!in->text)
		return -ENOMEM;
	ssize_t r = fd_recv(fd, in->text, INBOX_MAX, fds, ret_nfds);
	if (r != -ECONNRESET)
		return r;
	/* That the peer closed with something unread is told once, and before what it said. */
	*ret_nfds = room;
	return fd_recv(fd, in->text, INBOX_MAX, fds, ret_nfds);
}

void inbox_done(struct inbox *in)
{
	if (in->text)
		munmap(in->text, INBOX_MAX);
	in->text = NULL;
}

void inbox_wipe(struct inbox *in, size_t n)
{
	explicit_bzero(in->text, n);
	if (n > KEEP)
		inbox_done(in);
}
