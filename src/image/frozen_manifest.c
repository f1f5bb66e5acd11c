/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading frozen.json, strictly: what it does not say exactly is damage. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/frozen_private.h"

#define FORMAT       1
#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_MAX  64 /* bytes */

int frozen_fail(struct err *e, int code, const char *what, const char *path)
{
	if (code == ENOSPC || code == EDQUOT)
		return err_set(e, code, "%s %s: no space left there: free some", what, path);
	return err_sys(e, code, "%s %s", what, path);
}

/* What changes when the host restarts, and with it what was never synced may be lost. */
static int boot_id(char **ret, struct err *e)
{
	size_t len;
	int r = file_read(BOOT_ID_FILE, BOOT_ID_MAX, ret, &len);
	if (r < 0)
		return err_sys(e, -r, "reading " BOOT_ID_FILE);
	(*ret)[strcspn(*ret, "\n")] = '\0';
	return 0;
}

static json_t *file_to_json(const struct frozen_file *f, bool fleeting)
{
	json_int_t bytes = (json_int_t)f->bytes;
	if (fleeting)
		return json_pack("{s:I}", "bytes", bytes);
	return json_pack("{s:I,s:s}", "bytes", bytes, "sha256", f->sum);
}

static json_t *to_json(const struct frozen_manifest *m, const char *boot)
{
	json_t *j = json_pack(
		"{s:i,s:I,s:o,s:o,s:o,s:{s:I,s:I}}", "format", FORMAT, "made_ms",
		(json_int_t)m->made_ms, "memory", file_to_json(&m->memory, m->fleeting), "state",
		file_to_json(&m->state, m->fleeting), "disk", file_to_json(&m->disk, m->fleeting),
		"root", "bytes", (json_int_t)m->root_bytes, "mtime", (json_int_t)m->root_mtime);
	int r = 0;
	if (boot)
		r = json_object_set_new(j, "boot", json_string(boot));
	if (r == 0)
		r = json_object_set(j, "extra", m->extra);
	if (r == 0)
		return j;
	json_decref(j);
	return NULL;
}

/* The text of the file. */
static char *to_text(const struct frozen_manifest *m, const char *boot)
{
	char sum[CONTENT_HEX_SIZE];
	auto_json json_t *inner = to_json(m, boot);
	auto_free char *text = inner ? doc_to_text(inner) : NULL;
	if (!text || content_sum_bytes(text, strlen(text), sum) < 0)
		return NULL;
	auto_json json_t *outer = json_pack("{s:O,s:s}", "manifest", inner, "sha256", sum);
	return outer ? doc_to_text(outer) : NULL;
}

static int write_file(int dirfd, const char *text, bool sync)
{
	auto_fd int fd =
		openat(dirfd, FROZEN_MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = fd_write_all(fd, text, strlen(text));
	if (r == 0 && sync && fsync(fd) < 0)
		r = -errno;
	return r;
}

int frozen_write_manifest(int dirfd, const char *dir, const struct frozen_manifest *m,
			  struct err *e)
{
	auto_free char *boot = NULL;
	int r = m->fleeting ? boot_id(&boot, e) : 0;
	if (r < 0)
		return r;
	auto_free char *text = to_text(m, boot);
	if (!text)
		return err_set(e, ENOMEM, "%s: making the manifest failed", dir);
	/* What can't be read again must not replace what can. */
	auto_json json_t *again = doc_parse_json(text, strlen(text), e);
	if (!again)
		return err_prefix(e, "%s: the manifest", dir);
	if (strlen(text) > FROZEN_MANIFEST_MAX)
		return err_set(e, E2BIG, "%s: the manifest is too long", dir);
	r = write_file(dirfd, text, !m->fleeting);
	return r < 0 ? frozen_fail(e, -r, "writing the manifest in", dir) : 0;
}

static int take_sum(const json_t *j, char ret[CONTENT_HEX_SIZE], struct err *e)
{
	const char *sum = NULL;
	int r = doc_want_string(j, "sha256", &sum, e);
	if (r < 0)
		return r;
	if (strlen(sum) != CONTENT_HEX_SIZE - 1 || strspn(sum, "0123456789abcdef") != strlen(sum))
		return err_set(e, EINVAL, "sha256 is none");
	memcpy(ret, sum, CONTENT_HEX_SIZE);
	return 0;
}

static int take_file(const json_t *j, const char *key, bool fleeting, struct frozen_file *ret,
		     struct err *e)
{
	static const char *const known[] = {"bytes", "sha256", NULL};
	json_t *file = NULL;
	int r = doc_want_object(j, key, &file, e);
	if (r == 0)
		r = doc_only(file, fleeting ? (const char *const[]){"bytes", NULL} : known, e);
	if (r == 0)
		r = doc_want_uint(file, "bytes", 1, CONTENT_SIZE_MAX, &ret->bytes, e);
	if (r == 0 && !fleeting)
		r = take_sum(file, ret->sum, e);
	return r;
}

static int take_root(const json_t *j, struct frozen_manifest *m, struct err *e)
{
	static const char *const known[] = {"bytes", "mtime", NULL};
	json_t *root = NULL;
	int r = doc_want_object(j, "root", &root, e);
	if (r == 0)
		r = doc_only(root, known, e);
	if (r == 0)
		r = doc_want_uint(root, "bytes", 0, CONTENT_SIZE_MAX, &m->root_bytes, e);
	if (r == 0)
		r = doc_want_uint(root, "mtime", 0, INT64_MAX, &m->root_mtime, e);
	return r;
}

static int check_boot(const json_t *j, struct frozen_manifest *m, struct err *e)
{
	const char *boot = NULL;
	auto_free char *now = NULL;
	int r = doc_opt_string(j, "boot", &boot, e);
	if (r < 0 || !boot)
		return r;
	m->fleeting = true;
	r = boot_id(&now, e);
	if (r < 0)
		return r;
	if (!str_eq(boot, now))
		return err_set(e, EINVAL, "it was not made to outlive a restart of the host");
	return 0;
}

static int take_manifest(const json_t *j, struct frozen_manifest *m, struct err *e)
{
	static const char *const known[] = {"format", "made_ms", "memory", "state", "disk",
					    "root",   "boot",    "extra",  NULL};
	uint64_t format;
	json_t *extra = NULL;
	int r = doc_only(j, known, e);
	if (r == 0)
		r = doc_want_uint(j, "format", FORMAT, FORMAT, &format, e);
	if (r == 0)
		r = doc_want_uint(j, "made_ms", 0, INT64_MAX, &m->made_ms, e);
	if (r == 0)
		r = check_boot(j, m, e);
	if (r == 0)
		r = take_file(j, FROZEN_MEMORY, m->fleeting, &m->memory, e);
	if (r == 0)
		r = take_file(j, FROZEN_STATE, m->fleeting, &m->state, e);
	if (r == 0)
		r = take_file(j, FROZEN_DISK, m->fleeting, &m->disk, e);
	if (r == 0)
		r = take_root(j, m, e);
	if (r == 0)
		r = doc_want_object(j, "extra", &extra, e);
	if (r == 0)
		m->extra = json_incref(extra);
	return r;
}

static int parse(const char *text, size_t len, struct frozen_manifest *ret, struct err *e)
{
	static const char *const known[] = {"manifest", "sha256", NULL};
	char want[CONTENT_HEX_SIZE];
	char sum[CONTENT_HEX_SIZE];
	json_t *inner = NULL;
	auto_json json_t *outer = doc_parse_json(text, len, e);
	if (!outer)
		return -EINVAL;
	if (!json_is_object(outer))
		return err_set(e, EINVAL, "it is no object");
	int r = doc_only(outer, known, e);
	if (r == 0)
		r = doc_want_object(outer, "manifest", &inner, e);
	if (r == 0)
		r = take_sum(outer, want, e);
	if (r < 0)
		return r;
	auto_free char *again = doc_to_text(inner);
	if (!again || content_sum_bytes(again, strlen(again), sum) < 0)
		return err_set(e, ENOMEM, "not enough memory");
	if (!str_eq(want, sum))
		return err_set(e, EINVAL, "its SHA-256 differs");
	return take_manifest(inner, ret, e);
}

int frozen_read_manifest(int dirfd, const char *dir, struct frozen_manifest *ret, struct err *e)
{
	auto_free char *text = NULL;
	size_t len;
	struct stat st;
	int r = frozen_stat(dirfd, dir, FROZEN_MANIFEST, &st, e);
	if (r == 0)
		return err_set(e, EBADMSG, "%s/" FROZEN_MANIFEST " is missing", dir);
	if (r < 0)
		return r;
	r = file_read_at(dirfd, FROZEN_MANIFEST, FROZEN_MANIFEST_MAX, &text, &len);
	if (r == -EFBIG)
		return err_set(e, EBADMSG, "%s/" FROZEN_MANIFEST " is too long", dir);
	if (r < 0)
		return err_sys(e, -r, "reading %s/" FROZEN_MANIFEST, dir);
	struct frozen_manifest m = {0};
	struct err why = {0};
	r = parse(text, len, &m, &why);
	if (r < 0) {
		frozen_manifest_done(&m);
		return err_set(e, r == -ENOMEM ? ENOMEM : EBADMSG,
			       "%s/" FROZEN_MANIFEST " is damaged: %s", dir, why.text);
	}
	*ret = m;
	return 0;
}

void frozen_manifest_done(struct frozen_manifest *m)
{
	json_decref(m->extra);
	m->extra = NULL;
}
