/* SPDX-License-Identifier: Apache-2.0 */
/* What both directions of /files have in common: the user, and what paths mean to him. */
#pragma once

#include <stdbool.h>

#include "agent/agent.h"

struct file_request {
	struct user user;
	char *query; /* the parameter "path" as sent, NULL when absent */
	char *path;  /* resolved; of an absent one the default directory */
};

/* Reads the query of x. False: x was answered, and ret holds nothing. */
bool file_request_read(struct agent *a, struct http_exchange *x, struct file_request *ret);
void file_request_done(struct file_request *r);

/* The status that answers a file operation's errno value. */
unsigned file_request_status(int error);
