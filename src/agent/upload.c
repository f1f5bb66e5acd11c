/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /files: a raw body into the file that the query names, or a form's parts named "file" into
 * the files that they name. Bytes go from the receive buffer into the file. A failure is answered
 * when the body has ended, so that a client that only sends gets to read it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/file_request.h"
#include "agent/file_sink.h"
#include "agent/multipart.h"
#include "agent/path.h"
#include "agent/rpc.h"
#include "agent/text.h"
#include "base/cleanup.h"
#include "base/str.h"

#define UPLOAD_FILES_MAX   1024
#define UPLOAD_DISCARD_MAX (256 * 1024 * 1024) /* bytes read and dropped to get a failure told */

struct upload {
	struct agent *agent;
	struct http_exchange *x;
	struct file_request req;
	mode_t mode;
	struct file_sink sink;
	json_t *entries; /* of the answer */
	bool is_form;
	struct multipart form;
	unsigned failed; /* the status to answer; 0 while all is well */
	struct err why;
	uint64_t discarded;
};

static void upload_free(struct upload *u)
{
	file_sink_close(&u->sink, &u->req.user, u->failed == 0);
	if (u->is_form)
		multipart_done(&u->form);
	file_request_done(&u->req);
	json_decref(u->entries);
	free(u);
}

static void upload_fail(struct upload *u, unsigned status)
{
	file_sink_close(&u->sink, &u->req.user, false);
	u->failed = status;
}

static bool seen(const json_t *entries, const json_t *path)
{
	size_t i;
	json_t *entry;
	json_array_foreach(entries, i,
			   entry) if (json_equal(json_object_get(entry, "path"), path)) return true;
	return false;
}

/* Opens path and notes it for the answer. */
static void begin_file(struct upload *u, const char *path)
{
	if (json_array_size(u->entries) >= UPLOAD_FILES_MAX) {
		err_set(&u->why, EINVAL, "more than %d files in one request", UPLOAD_FILES_MAX);
		upload_fail(u, 400);
		return;
	}
	auto_json json_t *name = text_to_json(path);
	if (name && seen(u->entries, name)) {
		err_set(&u->why, EINVAL, "path '%s' is there twice", path);
		upload_fail(u, 400);
		return;
	}
	int r = file_sink_open(&u->sink, &u->req.user, path, u->mode, &u->why);
	if (r < 0) {
		upload_fail(u, file_request_status(-r));
		return;
	}
	json_t *entry = json_pack("{s:O, s:o, s:s}", "path", name, "name",
				  text_to_json(strrchr(path, '/') + 1), "type", "file");
	if (json_array_append_new(u->entries, entry) < 0) {
		err_set(&u->why, ENOMEM, "out of memory");
		upload_fail(u, 500);
	}
}

static void begin_part(struct upload *u)
{
	auto_free char *path = NULL;
	if (!str_eq(u->form.name, "file"))
		return;
	if (u->req.query && *u->req.query) {
		begin_file(u, u->req.path);
		return;
	}
	if (!u->form.filename || !*u->form.filename) {
		err_set(&u->why, EINVAL, "a part has no file name, and the query no path");
		upload_fail(u, 400);
		return;
	}
	if (path_resolve(u->form.filename, u->req.user.home, u->agent->settings.workdir, &path,
			 &u->why) < 0)
		upload_fail(u, 400);
	else
		begin_file(u, path);
}

static void write_data(struct upload *u, const uint8_t *p, size_t n)
{
	if (u->sink.fd < 0)
		return; /* a part that is not for us */
	int r = file_sink_write(&u->sink, p, n, &u->why);
	if (r < 0)
		upload_fail(u, file_request_status(-r));
}

static void form_data(struct upload *u, const uint8_t *p, size_t n)
{
	enum multipart_event event;
	do {
		ssize_t r = multipart_read(&u->form, p, n, &event);
		if (r < 0) {
			err_set(&u->why, EBADMSG, "the form is malformed");
			upload_fail(u, r == -ENOMEM ? 500 : 400);
			return;
		}
		if (event == MULTIPART_PART)
			begin_part(u);
		else if (event == MULTIPART_DATA)
			write_data(u, u->form.data, u->form.len);
		else if (event == MULTIPART_PART_END)
			file_sink_close(&u->sink, &u->req.user, true);
		p += r;
		n -= (size_t)r;
	} while (event != MULTIPART_MORE && event != MULTIPART_END && !u->failed);
}

static void answer(struct upload *u)
{
	struct http_exchange *x = u->x;
	if (!u->failed && u->is_form && !multipart_complete(&u->form)) {
		err_set(&u->why, EBADMSG, "the form has no end");
		upload_fail(u, 400);
	}
	if (!u->failed && json_array_size(u->entries) == 0) {
		err_set(&u->why, EINVAL, "the form has no part named 'file'");
		upload_fail(u, 400);
	}
	if (u->failed)
		http_exchange_reply_error(x, u->failed, "%s", u->why.text);
	else
		rpc_reply(x, json_incref(u->entries));
	upload_free(u);
}

static void on_body(void *user, const uint8_t *p, size_t n)
{
	struct upload *u = user;
	if (u->failed) {
		u->discarded += n;
		if (u->discarded > UPLOAD_DISCARD_MAX)
			answer(u);
	} else if (u->is_form) {
		form_data(u, p, n);
	} else {
		write_data(u, p, n);
	}
}

static void on_body_end(void *user)
{
	answer(user);
}

static void on_gone(void *user)
{
	struct upload *u = user;
	upload_fail(u, 400); /* told to no one */
	upload_free(u);
}

static const struct http_exchange_ops upload_ops = {
	.body = on_body, .body_end = on_body_end, .gone = on_gone};

/* X-Space-Mode: octal permission bits. */
static bool read_mode(struct http_exchange *x, mode_t *ret)
{
	const char *value = http_fields_get(&http_exchange_head(x)->fields, "x-space-mode");
	*ret = FILE_MODE_KEEP;
	if (!value)
		return true;
	size_t n = strlen(value);
	if (n < 1 || n > 5 || strspn(value, "01234567") != n)
		return false;
	mode_t mode = 0;
	for (; *value; value++)
		mode = mode << 3 | (mode_t)(*value - '0');
	*ret = mode;
	return mode <= 07777;
}

/* Finds out what kind of body it is. 0, or the status to answer with why set. */
static unsigned read_kind(struct upload *u)
{
	const struct http_fields *fields = &http_exchange_head(u->x)->fields;
	const char *type = http_fields_get(fields, "content-type");
	const char *coding = http_fields_get(fields, "content-encoding");
	if (coding && strcasecmp(coding, "identity") != 0) {
		err_set(&u->why, EINVAL, "Content-Encoding '%s' is not supported", coding);
		return 415;
	}
	if (!read_mode(u->x, &u->mode)) {
		err_set(&u->why, EINVAL, "X-Space-Mode is not an octal mode");
		return 400;
	}
	if (type && multipart_init(&u->form, type) == 0) {
		u->is_form = true;
		return 0;
	}
	if (!rpc_has_type(u->x, "application/octet-stream")) {
		err_set(&u->why, EINVAL,
			"Content-Type is neither application/octet-stream nor multipart/form-data "
			"with a boundary");
		return 400;
	}
	if (!u->req.query || !*u->req.query) {
		err_set(&u->why, EINVAL, "the query has no path");
		return 400;
	}
	return 0;
}

void agent_files_post(struct agent *a, struct http_exchange *x)
{
	struct file_request req;
	if (!file_request_read(a, x, &req))
		return;
	struct upload *u = calloc(1, sizeof(*u));
	if (u)
		*u = (struct upload){.agent = a, .x = x, .req = req, .sink.fd = -1};
	if (u)
		u->entries = json_array();
	if (!u || !u->entries) {
		file_request_done(&req);
		free(u);
		http_exchange_reply_error(x, 500, "out of memory");
		return;
	}
	u->failed = read_kind(u);
	if (!u->failed && !u->is_form)
		begin_file(u, u->req.path);
	http_exchange_on(x, &upload_ops, u);
	http_exchange_read(x, true);
}
