/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of hosts in the order in which they were asked for; the position is the address. A hash
 * index finds a host again; it is seeded, for the guest picks the names.
 */
#include "egress/names.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/guest.h"
#include "base/str.h"

#define INDEX_SIZE (2UL * NAMES_MAX) /* a power of two */
#define FIRST_HOST 1                 /* the network's own address is nobody's */

struct names {
	char *hosts[NAMES_MAX];
	size_t count;
	uint16_t index[INDEX_SIZE]; /* position + 1; 0 is free */
	uint64_t seed;
	uint32_t net; /* host order */
};

struct names *names_new(void)
{
	struct names *n = calloc(1, sizeof(*n));
	struct in_addr net;
	if (!n)
		return NULL;
	random_bytes(&n->seed, sizeof(n->seed));
	inet_pton(AF_INET, SYNTHETIC_NET, &net);
	n->net = ntohl(net.s_addr);
	return n;
}

void names_free(struct names *n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n->count; i++)
		free(n->hosts[i]);
	free(n);
}

/* Where in the index host is, or would be. */
static size_t names_slot(const struct names *n, const char *host)
{
	uint64_t h = 0xcbf29ce484222325u ^ n->seed;
	for (const char *p = host; *p; p++)
		h = (h ^ (unsigned char)*p) * 0x100000001b3u;
	h ^= h >> 29;
	size_t i = h % INDEX_SIZE;
	while (n->index[i] && !str_eq(n->hosts[n->index[i] - 1], host))
		i = (i + 1) % INDEX_SIZE;
	return i;
}

bool names_has(const struct names *n, const char *host)
{
	return n->index[names_slot(n, host)];
}

int names_address(struct names *n, const char *host, struct address *ret)
{
	uint16_t *slot = &n->index[names_slot(n, host)];
	if (!*slot) {
		if (n->count == NAMES_MAX)
			return -ENOSPC;
		char *copy = strdup(host);
		if (!copy)
			return -ENOMEM;
		n->hosts[n->count++] = copy;
		*slot = (uint16_t)n->count;
	}
	uint32_t raw = htonl(n->net + FIRST_HOST + *slot - 1u);
	*ret = (struct address){.family = AF_INET};
	memcpy(ret->bytes, &raw, sizeof(raw));
	return 0;
}

const char *names_host(const struct names *n, const struct address *a)
{
	uint32_t raw;
	if (a->family != AF_INET)
		return NULL;
	memcpy(&raw, a->bytes, sizeof(raw));
	uint32_t position = ntohl(raw) - n->net - FIRST_HOST;
	return position < n->count ? n->hosts[position] : NULL;
}
