/* SPDX-License-Identifier: Apache-2.0 */
/* The codec: lines, the four shapes of message, nothing else. */
#include "vmm/qmp.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"

void qmp_msg_done(struct qmp_msg *m)
{
	json_decref(m->data);
	m->data = NULL;
}

void qmp_decoder_init(struct qmp_decoder *d)
{
	buf_init(&d->in, QMP_LINE_MAX);
	d->scanned = 0;
}

void qmp_decoder_done(struct qmp_decoder *d)
{
	buf_done(&d->in);
}

int qmp_feed(struct qmp_decoder *d, const void *p, size_t n)
{
	return buf_append(&d->in, p, n);
}

/* Event names and error classes go into messages to people: letters, digits, '_', '-'. */
static int copy_name(const json_t *j, char out[static QMP_NAME_SIZE])
{
	const char *s = json_string_value(j);
	size_t n = s ? json_string_length(j) : 0;

	if (n == 0 || n >= QMP_NAME_SIZE ||
	    strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != n)
		return -EBADMSG;
	memcpy(out, s, n + 1);
	return 0;
}

static void copy_text(const json_t *j, char *out, size_t size)
{
	const char *s = json_string_value(j);
	size_t n = 0;

	for (; s && s[n] && n + 1 < size; n++)
		out[n] = s[n] >= ' ' && s[n] <= '~' ? s[n] : '?';
	out[n] = '\0';
}

static int read_id(const json_t *root, struct qmp_msg *m)
{
	const json_t *id = json_object_get(root, "id");

	if (id && (!json_is_integer(id) || json_integer_value(id) < 0))
		return -EBADMSG;
	m->id = id ? (uint64_t)json_integer_value(id) : 0;
	return 0;
}

/* Sorts root into *m; what it keeps of root has a reference of its own. */
static int classify(const json_t *root, struct qmp_msg *m)
{
	json_t *value;

	if (!json_is_object(root))
		return -EBADMSG;
	if ((value = json_object_get(root, "return"))) {
		m->kind = QMP_RETURN;
		m->data = json_incref(value);
		return read_id(root, m);
	}
	if ((value = json_object_get(root, "error"))) {
		m->kind = QMP_ERROR;
		copy_text(json_object_get(value, "desc"), m->text, sizeof(m->text));
		return copy_name(json_object_get(value, "class"), m->name) < 0 ? -EBADMSG
									       : read_id(root, m);
	}
	if ((value = json_object_get(root, "event"))) {
		json_t *data = json_object_get(root, "data");

		if (data && !json_is_object(data))
			return -EBADMSG;
		m->kind = QMP_EVENT;
		m->data = json_incref(data);
		return copy_name(value, m->name);
	}
	if (json_is_object(json_object_get(root, "QMP"))) {
		m->kind = QMP_GREETING;
		return 0;
	}
	return -EBADMSG;
}

static int decode_line(const char *line, size_t len, struct qmp_msg *ret, struct err *e)
{
	struct qmp_msg m = {0};
	struct err why = {0};
	auto_json json_t *root = doc_parse_json(line, len, &why);

	if (!root)
		return err_set(e, EBADMSG, "QMP: %s", why.text);
	if (classify(root, &m) < 0) {
		qmp_msg_done(&m);
		return err_set(e, EBADMSG, "QMP: a message of unknown shape");
	}
	*ret = m;
	return 0;
}

int qmp_next(struct qmp_decoder *d, struct qmp_msg *ret, struct err *e)
{
	const char *start = (const char *)d->in.data, *end;
	int rc;

	if (d->in.len == d->scanned)
		return -EAGAIN;
	end = memchr(start + d->scanned, '\n', d->in.len - d->scanned);
	if (!end) {
		d->scanned = d->in.len;
		return -EAGAIN;
	}
	rc = decode_line(start, (size_t)(end - start), ret, e);
	d->scanned = 0;
	buf_consume(&d->in, (size_t)(end - start) + 1);
	return rc;
}

char *qmp_encode(uint64_t id, const char *command, json_t *arguments)
{
	auto_json json_t *root = json_pack("{s:s, s:I, s:O*}", "execute", command, "id",
					   (json_int_t)id, "arguments", arguments);
	auto_free char *text = root ? doc_to_text(root) : NULL;

	return text ? str_printf("%s\n", text) : NULL;
}
