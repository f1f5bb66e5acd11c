/* SPDX-License-Identifier: Apache-2.0 */
/* The API's calls that pause, resume and copy sandboxes, and those about templates (docs/api.md). */
#pragma once

#include "daemon/node.h"
#include "daemon/sandbox.h"
#include "http/server.h"

/* The HTTP status for an errno. */
unsigned api_status(int code);

/* Each answers x now or later. body is the request's, perhaps empty. */
void lifecycle_pause(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);
void lifecycle_resume(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);
void lifecycle_snapshot(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);
void lifecycle_fork(struct sandbox *sb, struct http_exchange *x, const char *body, size_t n);

void lifecycle_templates(struct node *n, struct http_exchange *x);
void lifecycle_build_template(struct node *n, struct http_exchange *x, const char *body,
			      size_t len);
void lifecycle_remove_template(struct node *n, struct http_exchange *x, const char *name);
