/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /etc/passwd and /etc/group, and lends the thread a user's rights on files. Ids are changed
 * with bare system calls: they act on one thread, which is what is wanted here.
 */
#include "agent/user.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define PASSWD_FIELDS 7
#define GROUP_FIELDS  4

struct field {
	const char *p;
	size_t n;
};

/* Cuts the line at *text into fields. Returns their count (0 for a line with another number), moves
 * on; -1 at the end. */
static int next_line(const char **text, struct field *fields, int want)
{
	const char *p = *text;
	if (!*p)
		return -1;
	const char *end = strchrnul(p, '\n');
	*text = *end ? end + 1 : end;

	int count = 0;
	for (const char *from = p; count < want; count++) {
		const char *colon = memchr(from, ':', (size_t)(end - from));
		fields[count] = (struct field){from, (size_t)((colon ? colon : end) - from)};
		if (!colon)
			return count + 1 == want ? want : 0;
		from = colon + 1;
	}
	return 0;
}

static bool field_is(const struct field *f, const char *s)
{
	return strlen(s) == f->n && memcmp(f->p, s, f->n) == 0;
}

static bool field_id(const struct field *f, uint32_t *ret)
{
	char digits[16];
	uint64_t v;
	if (f->n >= sizeof(digits))
		return false;
	memcpy(digits, f->p, f->n);
	digits[f->n] = '\0';
	if (str_to_u64(digits, 0, UINT32_MAX - 1, &v) < 0)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static char *path_or(const struct field *f, const char *otherwise)
{
	return f->n && f->p[0] == '/' ? strndup(f->p, f->n) : strdup(otherwise);
}

static int take_line(const struct field *fields, struct user *u)
{
	if (!field_id(&fields[2], &u->uid) || !field_id(&fields[3], &u->gid))
		return -ENOENT;
	u->name = strndup(fields[0].p, fields[0].n);
	u->home = path_or(&fields[5], "/");
	u->shell = path_or(&fields[6], "/bin/sh");
	return u->name && u->home && u->shell ? 0 : -ENOMEM;
}

/* by_id: name is a uid. */
static int find_line(const char *passwd, const char *name, bool by_id, struct user *u)
{
	struct field fields[PASSWD_FIELDS];
	uint32_t uid, wanted = 0;
	if (by_id && !field_id(&(struct field){name, strlen(name)}, &wanted))
		return -ENOENT;

	int count;
	while ((count = next_line(&passwd, fields, PASSWD_FIELDS)) >= 0) {
		if (!count || !fields[0].n)
			continue;
		if (by_id ? !field_id(&fields[2], &uid) || uid != wanted
			  : !field_is(&fields[0], name))
			continue;
		int r = take_line(fields, u);
		if (r != -ENOENT)
			return r;
	}
	return -ENOENT;
}

static int root_without_line(struct user *u)
{
	u->name = strdup("root");
	u->home = strdup("/root");
	u->shell = strdup("/bin/sh");
	return u->name && u->home && u->shell ? 0 : -ENOMEM;
}

static bool lists_member(const struct field *members, const char *name)
{
	const char *p = members->p, *end = p + members->n;
	size_t n = strlen(name);
	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		size_t len = (size_t)((comma ? comma : end) - p);
		if (len == n && memcmp(p, name, n) == 0)
			return true;
		p += len + 1;
	}
	return false;
}

static int add_group(struct user *u, gid_t gid)
{
	for (size_t i = 0; i < u->group_count; i++)
		if (u->groups[i] == gid)
			return 0;
	if (u->group_count == USER_GROUPS_MAX)
		return -E2BIG;
	u->groups[u->group_count++] = gid;
	return 0;
}

static int find_groups(const char *group, struct user *u)
{
	struct field fields[GROUP_FIELDS];
	uint32_t gid;
	u->groups = calloc(USER_GROUPS_MAX, sizeof(*u->groups));
	if (!u->groups)
		return -ENOMEM;
	int r = add_group(u, u->gid);
	int count;
	while (r == 0 && (count = next_line(&group, fields, GROUP_FIELDS)) >= 0)
		if (count && lists_member(&fields[3], u->name) && field_id(&fields[2], &gid))
			r = add_group(u, gid);
	return r;
}

int user_find(const char *passwd, const char *group, const char *name, struct user *ret)
{
	auto_user struct user u = {0};
	if (!*name || strpbrk(name, ":\n"))
		return -ENOENT;
	int r = find_line(passwd, name, false, &u);
	if (r == -ENOENT)
		r = find_line(passwd, name, true, &u);
	if (r == -ENOENT && (str_eq(name, "root") || str_eq(name, "0")))
		r = root_without_line(&u);
	if (r == 0)
		r = find_groups(group, &u);
	if (r < 0)
		return r;
	*ret = u;
	u = (struct user){0};
	return 0;
}

static int read_or_empty(const char *path, char **ret)
{
	size_t n;
	int r = file_read(path, USER_FILE_MAX, ret, &n);
	if (r != -ENOENT)
		return r;
	*ret = strdup("");
	return *ret ? 0 : -ENOMEM;
}

int user_load(const char *name, struct user *ret)
{
	auto_free char *passwd = NULL;
	auto_free char *group = NULL;
	int r = read_or_empty("/etc/passwd", &passwd);
	if (r == 0)
		r = read_or_empty("/etc/group", &group);
	return r < 0 ? r : user_find(passwd, group, name, ret);
}

void user_done(struct user *u)
{
	free(u->name);
	free(u->home);
	free(u->shell);
	free(u->groups);
	*u = (struct user){0};
}

/* Turns the effective capabilities off, or back on to all permitted ones. */
static int capabilities(bool on)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		data[i].effective = on ? data[i].permitted : 0;
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int user_enter(const struct user *u)
{
	if (u->uid == 0)
		return 0;
	if (geteuid() != 0)
		return u->uid == geteuid() ? 0 : -EPERM;
	if (syscall(SYS_setgroups, u->group_count, u->groups) < 0)
		return -errno;
	setfsgid(u->gid);
	setfsuid(u->uid);
	/* These two don't report: ask what holds now. */
	bool taken = (gid_t)setfsgid((gid_t)-1) == u->gid && (uid_t)setfsuid((uid_t)-1) == u->uid;
	int r = taken ? capabilities(false) : -EPERM;
	if (r < 0)
		user_leave();
	return r;
}

void user_leave(void)
{
	if (geteuid() != 0)
		return;
	if (capabilities(true) < 0 || syscall(SYS_setgroups, 0, NULL) < 0)
		abort();
	setfsuid(0);
	setfsgid(0);
	if (setfsuid((uid_t)-1) != 0 || setfsgid((gid_t)-1) != 0)
		abort();
}
