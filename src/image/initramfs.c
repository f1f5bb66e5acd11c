/* SPDX-License-Identifier: Apache-2.0 */
/* Entries are written in a fixed order with every timestamp 0 and root as owner, so that the
 * archive is reproducible. */
#include "image/initramfs.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/unpack.h"

#define AGENT_MAX  (64u << 20) /* bytes */
#define MODULE_MAX (32u << 20) /* bytes, packed or not */

#define PAGE_BYTES  4096
#define SIZE_MODULO 512 /* of the whole file, modulo PAGE_BYTES */

struct member {
	const char *name;
	mode_t mode;   /* type and permissions */
	dev_t device;  /* of a character device */
	const void *p; /* of a regular file */
	size_t n;
};

static int write_member(struct archive *a, const struct member *m, struct err *e)
{
	struct archive_entry *entry = archive_entry_new();
	if (!entry)
		return err_set(e, ENOMEM, "not enough memory for the initramfs");
	archive_entry_set_pathname(entry, m->name);
	archive_entry_set_mode(entry, m->mode);
	archive_entry_set_nlink(entry, 1);
	archive_entry_set_mtime(entry, 0, 0);
	archive_entry_set_size(entry, (la_int64_t)m->n);
	if (m->device)
		archive_entry_set_rdev(entry, m->device);
	bool ok = archive_write_header(a, entry) == ARCHIVE_OK &&
		  (!m->n || archive_write_data(a, m->p, m->n) == (la_ssize_t)m->n);
	archive_entry_free(entry);
	if (!ok)
		return err_set(e, EIO, "writing %s to the initramfs: %s", m->name,
			       archive_error_string(a));
	return 0;
}

static int write_agent(struct archive *a, const char *agent, struct err *e)
{
	auto_free char *data = NULL;
	size_t len;
	int r = file_read(agent, AGENT_MAX, &data, &len);
	if (r < 0)
		return err_sys(e, -r, "reading the agent %s", agent);
	return write_member(a, &(struct member){"init", S_IFREG | 0755, .p = data, .n = len}, e);
}

static int write_module(struct archive *a, const char *dir, const char *path, struct buf *order,
			struct err *e)
{
	char file[MODULE_FILE_MAX];
	if (modules_file_name(path, file) < 0)
		return err_set(e, EINVAL, "odd name of a module: %s", path);
	auto_free char *from = str_printf("%s/%s", dir, path);
	auto_free char *name = str_printf("modules/%s", file);
	if (!from || !name || buf_printf(order, "%s\n", file) < 0)
		return err_set(e, ENOMEM, "not enough memory for the initramfs");
	auto_free char *data = NULL;
	size_t len;
	int r = file_read(from, MODULE_MAX, &data, &len);
	if (r < 0)
		return err_sys(e, -r, "reading module %s", from);

	struct member m = {name, S_IFREG | 0644, .p = data, .n = len};
	auto_buf struct buf plain;
	buf_init(&plain, MODULE_MAX);
	if (unpack_knows(data, len)) {
		r = unpack(data, len, &plain, e);
		if (r < 0)
			return err_prefix(e, "module %s", file);
		m.p = plain.data;
		m.n = plain.len;
	}
	return write_member(a, &m, e);
}

static int write_members(struct archive *a, const char *agent, const char *module_dir,
			 const struct modules *modules, struct err *e)
{
	static const struct member first[] = {
		{.name = "dev", .mode = S_IFDIR | 0755},
		{.name = "dev/console", .mode = S_IFCHR | 0600, .device = 5 << 8 | 1},
		{.name = "modules", .mode = S_IFDIR | 0755},
	};
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		int r = write_member(a, &first[i], e);
		if (r < 0)
			return r;
	}
	int r = write_agent(a, agent, e);
	auto_buf struct buf order;
	buf_init(&order, (size_t)MODULES_MAX * MODULE_FILE_MAX);
	for (size_t i = 0; r == 0 && i < modules->count; i++)
		r = write_module(a, module_dir, modules->paths[i], &order, e);
	if (r < 0)
		return r;
	return write_member(
		a,
		&(struct member){"modules/order", S_IFREG | 0644, .p = order.data, .n = order.len},
		e);
}

static int pad(int fd, struct err *e)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "initramfs");
	off_t past = (st.st_size - SIZE_MODULO) % PAGE_BYTES;
	if (past != 0 && ftruncate(fd, st.st_size + PAGE_BYTES - past) < 0)
		return err_sys(e, errno, "initramfs");
	return 0;
}

int initramfs_write(const char *path, const char *agent, const char *module_dir,
		    const struct modules *modules, struct err *e)
{
	auto_fd int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_sys(e, errno, "making %s", path);
	struct archive *a = archive_write_new();
	if (!a)
		return err_set(e, ENOMEM, "not enough memory for the initramfs");
	int r = 0;
	archive_write_set_format_cpio_newc(a);
	archive_write_add_filter_none(a);
	archive_write_set_bytes_in_last_block(a, 1);
	if (archive_write_open_fd(a, fd) != ARCHIVE_OK)
		r = err_set(e, EIO, "making %s: %s", path, archive_error_string(a));
	if (r == 0)
		r = write_members(a, agent, module_dir, modules, e);
	if (archive_write_close(a) != ARCHIVE_OK && r == 0)
		r = err_set(e, EIO, "writing %s: %s", path, archive_error_string(a));
	archive_write_free(a);
	return r < 0 ? r : pad(fd, e);
}
