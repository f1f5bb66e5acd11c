/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/waiting.h"

void waiting_body(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

void waiting_event(void *user)
{
	(void)user;
}
