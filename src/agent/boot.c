/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: the kernel starts us from an initramfs that holds this program and the
 * modules which find the disks. The image is mounted read-only, the scratch disk writable, and an
 * overlay of both becomes the root by the steps of switch_root(8). Image and scratch are detached
 * then: the overlay keeps them, and tasks see no way around it. Waiting is on the kernel's uevents,
 * with a deadline.
 */
#include "agent/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "agent/machine.h"
#include "agent/modules.h"
#include "agent/network.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/log.h"

#define DEVICES_DEADLINE_MS 20000 /* from the last module to disks and network */
#define OVERLAY_OPTIONS \
	"lowerdir=/lower,upperdir=/scratch/upper,workdir=/scratch/work,redirect_dir=on"

struct mount_row {
	const char *source, *target, *type, *options;
	unsigned long flags;
	bool needed;
};

static const struct mount_row early[] = {
	{"proc", "/proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, true},
	{"sysfs", "/sys", "sysfs", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, true},
	{"devtmpfs", "/dev", "devtmpfs", "mode=0755", MS_NOSUID, true},
};

static const struct mount_row disks[] = {
	{GUEST_ROOT_DEVICE, "/lower", "ext4", "noload,no_prefetch_block_bitmaps",
	 MS_RDONLY | MS_NOATIME, true},
	{GUEST_SCRATCH_DEVICE, "/scratch", "ext4", "noinit_itable,no_prefetch_block_bitmaps",
	 MS_NOATIME, true},
};

/* Relative to the new root, which is the working directory then. */
static const struct mount_row late[] = {
	{"devpts", "dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666", MS_NOSUID | MS_NOEXEC, true},
	{"tmpfs", "dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, true},
	{"mqueue", "dev/mqueue", "mqueue", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, false},
	{"tmpfs", "run", "tmpfs", "mode=0755", MS_NOSUID | MS_NODEV, true},
	/* favordynmods: entering a group, as each process does that is started, waits for no grace
	   period of the kernel's. */
	{"cgroup2", "sys/fs/cgroup", "cgroup2", "nsdelegate,favordynmods",
	 MS_NOSUID | MS_NODEV | MS_NOEXEC, false},
};

#define ROWS(table) table, sizeof(table) / sizeof((table)[0])

static int mount_all(const struct mount_row *rows, size_t count, struct err *e)
{
	for (const struct mount_row *m = rows; m < rows + count; m++) {
		mkdir(m->target, 0755); /* where it is missing; the mount tells the rest */
		if (mount(m->source, m->target, m->type, m->flags, m->options) == 0)
			continue;
		if (m->needed)
			return err_sys(e, errno, "can't mount %s on %s", m->source, m->target);
		log_warn("can't mount %s on %s", m->source, m->target);
	}
	return 0;
}

static int open_console(struct err *e)
{
	auto_fd int fd = open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "/dev/console");
	for (int i = 0; i < 3; i++)
		if (dup2(fd, i) < 0)
			return err_sys(e, errno, "/dev/console");
	if (fd <= STDERR_FILENO)
		take_fd(fd);
	return 0;
}

static int open_uevents(struct err *e)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = 1};
	auto_fd int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
				NETLINK_KOBJECT_UEVENT);
	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_sys(e, errno, "can't listen for devices");
	return take_fd(fd);
}

/* What is still missing, NULL when all is there. */
static const char *missing_device(void)
{
	if (access(GUEST_ROOT_DEVICE, F_OK) < 0)
		return GUEST_ROOT_DEVICE;
	if (access(GUEST_SCRATCH_DEVICE, F_OK) < 0)
		return GUEST_SCRATCH_DEVICE;
	return network_present() > 0 ? NULL : "the network interface";
}

static int wait_for_devices(int uevents, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + DEVICES_DEADLINE_MS;
	const char *missing;
	while ((missing = missing_device())) {
		char event[4096];
		struct pollfd p = {.fd = uevents, .events = POLLIN};
		uint64_t now = clock_mono_ms();
		if (now >= deadline)
			return err_set(e, ENODEV, "%s did not appear", missing);
		if (poll(&p, 1, (int)(deadline - now)) < 0 && errno != EINTR)
			return err_sys(e, errno, "poll");
		while (recv(uevents, event, sizeof(event), 0) > 0)
			;
	}
	return 0;
}

static int join_disks(struct err *e)
{
	int r = mount_all(ROWS(disks), e);
	if (r < 0)
		return r;
	mkdir("/scratch/upper", 0755);
	mkdir("/scratch/work", 0755);
	mkdir("/newroot", 0755);
	if (mount("overlay", "/newroot", "overlay", 0, OVERLAY_OPTIONS) < 0)
		return err_sys(e, errno, "can't join image and scratch disk");
	if (umount2("/lower", MNT_DETACH) < 0 || umount2("/scratch", MNT_DETACH) < 0)
		return err_sys(e, errno, "can't detach the disks");
	return 0;
}

static int carry_mount(const char *from, const char *to, struct err *e)
{
	mkdir(to, 0755);
	return mount(from, to, NULL, MS_MOVE, NULL) < 0
		       ? err_sys(e, errno, "can't move %s to %s", from, to)
		       : 0;
}

static int switch_root(struct err *e)
{
	int r = carry_mount("/proc", "/newroot/proc", e);
	if (r == 0)
		r = carry_mount("/sys", "/newroot/sys", e);
	if (r == 0)
		r = carry_mount("/dev", "/newroot/dev", e);
	if (r < 0)
		return r;
	/* The initramfs stays mounted for ever: what it holds is memory. */
	dir_remove_all("/modules");
	unlink("/init");
	if (chdir("/newroot") < 0)
		return err_sys(e, errno, "/newroot");
	r = mount_all(ROWS(late), e);
	if (r < 0)
		return r;
	if (mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return err_sys(e, errno, "can't switch to the new root");
	return 0;
}

struct link_row {
	const char *path, *to;
};

/* What udev or an initramfs would have made; bash's process substitution needs the first. */
static void link_devices(void)
{
	static const struct link_row links[] = {
		{"/dev/fd", "/proc/self/fd"},
		{"/dev/stdin", "/proc/self/fd/0"},
		{"/dev/stdout", "/proc/self/fd/1"},
		{"/dev/stderr", "/proc/self/fd/2"},
	};
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i].to, links[i].path) < 0 && errno != EEXIST)
			log_warn("can't make %s", links[i].path);
}

/* A file of the image moves to the sandbox's disk when it is first opened for writing: done here,
   so that a machine that was frozen does not do it while somebody waits. */
static void move_up(const char *path, mode_t mode)
{
	auto_fd int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && fchmod(fd, mode) < 0)
		log_warn("can't set the mode of %s", path);
}

static int settle(struct err *e)
{
	link_devices();
	if (mkdir("/tmp", 01777) == 0)
		chmod("/tmp", 01777);
	move_up("/etc/machine-id", MACHINE_ID_MODE);
	int r = machine_set_hostname("space", e);
	return r < 0 ? r : machine_set_resolver(GUEST_GATEWAY, e);
}

int boot(struct err *e)
{
	int r = mount_all(ROWS(early), e);
	if (r == 0)
		r = open_console(e);
	if (r < 0)
		return r;
	auto_fd int uevents = open_uevents(e);
	if (uevents < 0)
		return uevents;
	r = modules_load("/modules", e);
	if (r == 0)
		r = wait_for_devices(uevents, e);
	if (r == 0)
		r = network_up(e);
	if (r == 0)
		r = join_disks(e);
	if (r == 0)
		r = switch_root(e);
	return r < 0 ? r : settle(e);
}
