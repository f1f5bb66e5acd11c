/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clock, randomness and names of the machine. After a restore from a snapshot all of them are those
 * of the template until the host has told the new ones: hence they can be set again at any time.
 */
#include "agent/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/random.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define FILE_TEXT_MAX    512 /* bytes of a file that is compared before it is written */
#define NS_PER_S         1000000000
#define CLOCK_BEHIND_MAX (10 * 1000000LL) /* ns */
#define CLOCK_AHEAD_MAX  (5LL * NS_PER_S) /* ns */

bool machine_clock_is_off(int64_t now_ns, int64_t host_ns)
{
	int64_t ahead = now_ns - host_ns;
	return ahead < -CLOCK_BEHIND_MAX || ahead > CLOCK_AHEAD_MAX;
}

int machine_set_clock(int64_t host_ns, struct err *e)
{
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now) < 0)
		return err_sys(e, errno, "can't read the clock");
	if (!machine_clock_is_off((int64_t)now.tv_sec * NS_PER_S + now.tv_nsec, host_ns))
		return 0;
	struct timespec then = {host_ns / NS_PER_S, host_ns % NS_PER_S};
	return clock_settime(CLOCK_REALTIME, &then) < 0 ? err_sys(e, errno, "can't set the clock")
							: 0;
}

int machine_add_entropy(const uint8_t *p, size_t n, struct err *e)
{
	auto_fd int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	auto_free struct rand_pool_info *pool = malloc(sizeof(*pool) + n);
	if (fd < 0)
		return err_sys(e, errno, "/dev/urandom");
	if (!pool)
		return err_set(e, ENOMEM, "out of memory");
	pool->entropy_count = (int)(n * 8);
	pool->buf_size = (int)n;
	memcpy(pool->buf, p, n);
	int r = ioctl(fd, RNDADDENTROPY, pool) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0 ? -errno : 0;
	explicit_bzero(pool->buf, n);
	return r < 0 ? err_sys(e, -r, "can't add entropy") : 0;
}

/* Overwrites a file in place. 1, 0 when there is none that is regular and ours alone, -errno. */
static int overwrite(const char *path, mode_t mode, const char *text, size_t n)
{
	char now[FILE_TEXT_MAX];
	struct stat st;
	auto_fd int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1)
		return 0;
	if ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0)
		return -errno;
	ssize_t there = pread(fd, now, sizeof(now), 0);
	if (there == (ssize_t)n && memcmp(now, text, n) == 0)
		return 1;
	int r = fd_write_all(fd, text, n);
	if (r == 0 && st.st_size > (off_t)n && ftruncate(fd, (off_t)n) < 0)
		r = -errno;
	return r < 0 ? r : 1;
}

/* Sets a file of the image; one that is a link to elsewhere is replaced, not followed. In place
   where that is possible: making and removing names costs most of a thawed machine's first call. */
static int replace(const char *path, mode_t mode, const char *text, struct err *e)
{
	int done = overwrite(path, mode, text, strlen(text));
	if (done < 0)
		return err_sys(e, -done, "%s", path);
	if (done)
		return 0;
	unlink(path);
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
	return r < 0 ? err_sys(e, -r, "%s", path) : 0;
}

int machine_set_hostname(const char *name, struct err *e)
{
	if (sethostname(name, strlen(name)) < 0)
		return err_sys(e, errno, "can't set the host name");
	auto_free char *line = str_printf("%s\n", name);
	auto_free char *hosts = str_printf("127.0.0.1\tlocalhost %s\n"
					   "::1\tlocalhost ip6-localhost ip6-loopback\n",
					   name);
	if (!line || !hosts)
		return err_set(e, ENOMEM, "out of memory");
	int r = replace("/etc/hostname", 0644, line, e);
	return r < 0 ? r : replace("/etc/hosts", 0644, hosts, e);
}

int machine_set_resolver(const char *address, struct err *e)
{
	auto_free char *text = str_printf("nameserver %s\noptions timeout:2 attempts:2\n", address);
	if (!text)
		return err_set(e, ENOMEM, "out of memory");
	return replace("/etc/resolv.conf", 0644, text, e);
}

int machine_set_id(const char *id, struct err *e)
{
	auto_free char *line = str_printf("%s\n", id);
	if (!line)
		return err_set(e, ENOMEM, "out of memory");
	return replace("/etc/machine-id", MACHINE_ID_MODE, line, e);
}

void machine_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	/* A microVM without ACPI can't be switched off; its monitor takes a reset as the end. */
	reboot(RB_AUTOBOOT);
	_exit(1);
}
