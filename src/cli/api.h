/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to spaced, as docs/api.md describes them. */
#pragma once

#include "base/doc.h"
#include "cli/cli.h"
#include "http/client.h"

#define API_REPLY_MAX (16u << 20) /* bytes of a collected answer */
#define API_CALL_MS   300000      /* until the head of an answer: a busy host boots slowly */

/* A connection to spaced, which is started when none runs. */
int api_open(struct cli *cli, struct http_client **ret, struct err *e);

/* As above with a spaced that must be running: for calls that make no sense with a fresh one.
   closed(user): the idle connection ended and the pointer is dead; may be NULL for a client that is
   used and closed at once. */
int api_open_running(struct cli *cli, void (*closed)(void *user), void *user,
		     struct http_client **ret, struct err *e);

/* Fills a request: Host, and for a body its type and length. Released by http_head_done(). 0,
 * -ENOMEM. */
int api_request(struct http_head *head, const char *method, const char *target,
		const char *content_type, size_t n);

/* Adds what sends a request to the agent of a sandbox (by id). */
int api_to_agent(struct http_head *head, const char *sandbox_id);

/* A whole call; *ret is the parsed body (NULL when there is none), a new reference. A status of 400
   and more is a failure whose text is the answer's message. Blocks, running the loop. 0 or -errno:
   -ENOENT for 404. */
int api_call(struct cli *cli, const char *method, const char *target, const json_t *body,
	     json_t **ret, struct err *e);

/* The id of a sandbox that runs or is paused (a call to its agent resumes it), of which a name or
   an id is known; heap. */
int api_sandbox_id(struct cli *cli, const char *ref, char **ret, struct err *e);

/* "/sandboxes/REF" with what follows, encoded; heap, NULL: no memory. */
char *api_sandbox_path(const char *ref, const char *rest);

/* A call whose answer comes to done() from the loop, as http_client_fetch() has it; its head within
   timeout_ms. sandbox_id is NULL for spaced itself. -errno: done() is not called. */
int api_call_async(struct cli *cli, const char *method, const char *target, const char *sandbox_id,
		   const char *text, uint64_t timeout_ms,
		   void (*done)(void *user, unsigned status, const char *body, size_t n,
				const struct err *why),
		   void *user, struct err *e);

/* Prints it indented to standard output; to a terminal in ASCII, so that nothing in it can steer
 * that. */
void api_print_json(const json_t *j);

/* Prints it as one line of ASCII to standard output. */
void api_print_line(const json_t *j);

/* Sets e from an answer of status 400 and more; returns -errno. */
int api_error(unsigned status, const char *body, size_t n, struct err *e);
