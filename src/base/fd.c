/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

int fd_write_all(int fd, const void *p, size_t n)
{
	const char *c = p;
	while (n) {
		ssize_t r = write(fd, c, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		c += r;
		n -= (size_t)r;
	}
	return 0;
}

ssize_t fd_read_all(int fd, void *p, size_t n)
{
	size_t got = 0;
	while (got < n) {
		ssize_t r = read(fd, (char *)p + got, n - got);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

static int fd_change(int fd, int get, int set, int flag, bool on)
{
	int flags = fcntl(fd, get);
	if (flags < 0)
		return -errno;
	return fcntl(fd, set, on ? flags | flag : flags & ~flag) < 0 ? -errno : 0;
}

int fd_set_nonblock(int fd, bool on)
{
	return fd_change(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_set_cloexec(int fd, bool on)
{
	return fd_change(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

union fd_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
};

int fd_send(int sock, const void *p, size_t n, const int *fds, size_t nfds)
{
	if (nfds > FD_PASS_MAX)
		return -EINVAL;
	union fd_control control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (nfds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	ssize_t r;
	do
		r = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	return (size_t)r == n ? 0 : -EMSGSIZE;
}

/* Moves the descriptors of msg into fds, or closes them all when they are more than room. */
static int fd_collect(struct msghdr *msg, int *fds, size_t room, size_t *ret_nfds)
{
	size_t count = 0;
	bool cut = msg->msg_flags & (MSG_CTRUNC | MSG_TRUNC);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (count < room) {
				fds[count++] = fd;
			} else {
				close(fd);
				cut = true;
			}
		}
	}
	if (!cut) {
		*ret_nfds = count;
		return 0;
	}
	while (count)
		close(fds[--count]);
	*ret_nfds = 0;
	return -EMSGSIZE;
}

ssize_t fd_recv(int sock, void *p, size_t n, int *fds, size_t *ret_nfds)
{
	union fd_control control;
	struct iovec iov = {.iov_base = p, .iov_len = n};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t r;
	do
		r = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	int c = fd_collect(&msg, fds, ret_nfds ? *ret_nfds : 0, ret_nfds ? ret_nfds : &(size_t){0});
	return c < 0 ? c : r;
}

int file_read(const char *path, size_t max, char **ret_data, size_t *ret_len)
{
	return file_read_at(AT_FDCWD, path, max, ret_data, ret_len);
}

int file_read_at(int dirfd, const char *path, size_t max, char **ret_data, size_t *ret_len)
{
	auto_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;

	/* Sizes of files in /proc are 0, so read until the end rather than ask. */
	size_t cap = 4096, len = 0;
	auto_free char *data = malloc(cap + 1);
	if (!data)
		return -ENOMEM;
	for (;;) {
		ssize_t r = fd_read_all(fd, data + len, cap - len);
		if (r < 0)
			return (int)r;
		len += (size_t)r;
		if (len > max)
			return -EFBIG;
		if (len < cap)
			break;
		char *more = realloc(data, cap * 2 + 1);
		if (!more)
			return -ENOMEM;
		data = more;
		cap *= 2;
	}
	data[len] = '\0';
	*ret_data = take_ptr(data);
	if (ret_len)
		*ret_len = len;
	return 0;
}

static int dir_sync_parent(const char *path)
{
	auto_free char *dir = strdup(path);
	if (!dir)
		return -ENOMEM;
	char *slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir ? 1 : 0] = '\0';
	auto_fd int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

int file_write_atomic(const char *path, const void *p, size_t n, mode_t mode)
{
	auto_free char *tmp = str_printf("%s.XXXXXX", path);
	if (!tmp)
		return -ENOMEM;
	auto_fd int fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = fchmod(fd, mode) < 0 ? -errno : 0;
	if (r == 0)
		r = fd_write_all(fd, p, n);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(tmp);
		return r;
	}
	return dir_sync_parent(path);
}

int dir_make_all(const char *path, mode_t mode)
{
	auto_free char *p = strdup(path);
	if (!p)
		return -ENOMEM;
	for (char *s = p + 1; *s; s++) {
		if (*s != '/')
			continue;
		*s = '\0';
		if (mkdir(p, 0755) < 0 && errno != EEXIST)
			return -errno;
		*s = '/';
	}
	if (mkdir(p, mode) == 0)
		return 0;
	struct stat st;
	if (errno != EEXIST)
		return -errno;
	if (stat(p, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int dir_remove_at(int parent, const char *name)
{
	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	DIR *d = fdopendir(fd);
	if (!d) {
		int r = -errno;
		close(fd);
		return r;
	}
	int r = 0;
	for (struct dirent *e; r == 0 && (e = readdir(d));)
		if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
			r = dir_remove_at(dirfd(d), e->d_name);
	closedir(d);
	if (r == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

int dir_remove_all(const char *path)
{
	return dir_remove_at(AT_FDCWD, path);
}

void random_bytes(void *p, size_t n)
{
	size_t got = 0;
	while (got < n) {
		ssize_t r = getrandom((char *)p + got, n - got, 0);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			abort();
		got += (size_t)r;
	}
}

void random_id(char *out, size_t size, char first)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	out[0] = first;
	for (size_t i = 1; i + 1 < size; i++) {
		uint8_t random[2];
		random_bytes(random, sizeof(random));
		out[i] = alphabet[(random[0] << 8 | random[1]) % (sizeof(alphabet) - 1)];
	}
	out[size - 1] = '\0';
}
