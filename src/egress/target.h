/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a request means the host to which its connection was made, and what path it asks for. */
#pragma once

#include "base/err.h"
#include "http/msg.h"
#include "policy/policy.h"

/*
 * Judges Host, target and path of a head that the codec has accepted, against the connection's
 * scheme, host and port. 0 with *ret_path (a heap string, canonical) and *ret_query (inside the
 * head, or NULL) set; else the status to answer (400, 421, 503) and e saying why.
 */
unsigned target_judge(const struct http_head *head, const struct policy_dest *origin,
		      char **ret_path, const char **ret_query, struct err *e);
