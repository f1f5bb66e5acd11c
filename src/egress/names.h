/* SPDX-License-Identifier: Apache-2.0 */
/* Names and their synthetic addresses, one to one for the life of a sandbox: a connection to an
 * address names its host. */
#pragma once

#include "net/address.h"

#define NAMES_MAX \
	4096 /* names in one sandbox; never reused, for the guest may have cached an address */

struct names;

struct names *names_new(void); /* NULL: no memory */
void names_free(struct names *n);

/* The address of a canonical host name, made when first asked for. 0, -ENOSPC past NAMES_MAX,
 * -ENOMEM. */
int names_address(struct names *n, const char *host, struct address *ret);

/* Whether a host has its address already. */
bool names_has(const struct names *n, const char *host);

/* The host that an address was made for, or NULL. Borrowed for the life of n. */
const char *names_host(const struct names *n, const struct address *a);
