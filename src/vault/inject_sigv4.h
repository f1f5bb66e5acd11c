/* SPDX-License-Identifier: Apache-2.0 */
/* The recipe for AWS, for inject.c. */
#pragma once

#include "vault/inject.h"

/* As inject(), for a secret of the kind SECRET_SIGV4 and a zeroed *ret. */
int inject_sigv4(const struct secret *s, const struct inject_request *q, struct injection *ret,
		 struct err *e);
