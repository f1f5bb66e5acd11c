/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an attacker tries who has taken over a jailed process, one step for each run, for the
 * process may be killed for it: descriptor 3 gives the step's number. Exit status 0: the step
 * worked, which is a hole; else the errno with which it was refused. With "--count" it prints how
 * many steps there are, with "--name N" what one is.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>

#define ORDER_FD 3
#define OTHER    2 /* no process of this number is in its namespace */

static int tried(long rc)
{
	return rc < 0 ? errno : 0;
}

#define STEP(name, ...)             \
	static int name(void)       \
	{                           \
		return __VA_ARGS__; \
	}

/* -- other processes -- */
STEP(ptrace_other, tried(syscall(SYS_ptrace, 16L, OTHER, 0, 0)))
STEP(read_other, tried(syscall(SYS_process_vm_readv, OTHER, NULL, 0, NULL, 0, 0)))
STEP(write_other, tried(syscall(SYS_process_vm_writev, OTHER, NULL, 0, NULL, 0, 0)))
STEP(compare_other, tried(syscall(SYS_kcmp, OTHER, 1, 0, 0, 0)))
STEP(open_other, tried(syscall(SYS_pidfd_open, OTHER, 0)))
STEP(take_descriptor, tried(syscall(SYS_pidfd_getfd, 0, 0, 0)))
STEP(signal_other, tried(kill(OTHER, SIGKILL)))
STEP(signal_parent, getppid() == 0 ? ESRCH : tried(kill(getppid(), SIGTERM)))
STEP(signal_all, tried(kill(-1, SIGTERM)))
STEP(signal_thread, tried(syscall(SYS_tgkill, OTHER, OTHER, SIGKILL)))
STEP(prioritise_other, tried(syscall(SYS_setpriority, 0, OTHER, -20)))
STEP(schedule_first, tried(syscall(SYS_sched_setscheduler, 0, 1, &(int){50})))

static int group_is_others(void)
{
	/* One alone in its group and session: nobody but itself can be meant. */
	return getpgrp() == getpid() && getsid(0) == getpid() ? EPERM : 0;
}

static int sees_processes(void)
{
	DIR *d = opendir("/proc");
	int found = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		found += e->d_name[0] >= '1' && e->d_name[0] <= '9' && strcmp(e->d_name, "1") != 0;
	return found ? 0 : ENOENT;
}

/* -- namespaces and mounts -- */
STEP(mount_tmpfs, tried(mount("tmpfs", "/", "tmpfs", 0, NULL)))
STEP(mount_proc, tried(mount("proc", "/proc", "proc", 0, NULL)))
STEP(remount_root, tried(mount("none", "/", NULL, MS_REMOUNT | MS_BIND, NULL)))
STEP(unmount_proc, tried(umount2("/proc", MNT_DETACH)))
STEP(pivot, tried(syscall(SYS_pivot_root, "/", "/")))
STEP(change_root, tried(chroot("/proc")))
STEP(open_a_tree, tried(syscall(SYS_open_tree, AT_FDCWD, "/", 1)))
STEP(move_a_mount, tried(syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/dev", 0)))
STEP(open_filesystem, tried(syscall(SYS_fsopen, "tmpfs", 0)))
STEP(set_mount_flags, tried(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, NULL, 0)))
STEP(new_user_namespace, tried(unshare(CLONE_NEWUSER)))
STEP(new_mount_namespace, tried(unshare(CLONE_NEWNS)))
STEP(new_net_namespace, tried(unshare(CLONE_NEWNET)))
STEP(clone_user_namespace, tried(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)))

static int join_namespace(void)
{
	int fd = open("/proc/1/ns/net", O_RDONLY);
	return fd < 0 ? errno : tried(setns(fd, 0));
}

static int clone3_user_namespace(void)
{
	uint64_t args[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
	return tried(syscall(SYS_clone3, args, sizeof(args)));
}

/* -- identity -- */
STEP(become_root, tried(syscall(SYS_setuid, 0)))
STEP(become_root_again, tried(syscall(SYS_setresuid, 0, 0, 0)))
STEP(become_group, tried(syscall(SYS_setgid, 0)))
STEP(take_groups, tried(syscall(SYS_setgroups, 0, NULL)))
STEP(set_ambient, tried(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0)))
STEP(set_securebits, tried(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0)))
STEP(set_memory_map, tried(prctl(PR_SET_MM, PR_SET_MM_BRK, 0, 0, 0)))
STEP(set_personality, tried(syscall(SYS_personality, 0x0400000)))

static int set_capabilities(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{1u << CAP_SYS_ADMIN, 1u << CAP_SYS_ADMIN, 0}};
	return tried(syscall(SYS_capset, &h, d));
}

/* -- the kernel -- */
STEP(load_bpf, tried(syscall(SYS_bpf, 0, NULL, 0)))
STEP(perf, tried(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0)))
STEP(put_key, tried(syscall(SYS_add_key, "user", "x", "x", 1, -3)))
STEP(key_control, tried(syscall(SYS_keyctl, 0, -3, 1)))
STEP(ask_key, tried(syscall(SYS_request_key, "user", "x", NULL, 0)))
STEP(io_uring, tried(syscall(SYS_io_uring_setup, 1, (char[256]){0})))
STEP(user_faults, tried(syscall(SYS_userfaultfd, 1)))
STEP(kexec, tried(syscall(SYS_kexec_load, 0, 0, NULL, 0)))
STEP(load_module, tried(syscall(SYS_init_module, "x", 1, "")))
STEP(load_module_file, tried(syscall(SYS_finit_module, 0, "", 0)))
STEP(remove_module, tried(syscall(SYS_delete_module, "x", 0)))
STEP(change_ldt, tried(syscall(SYS_modify_ldt, 0, (char[64]){0}, 64)))
STEP(io_privilege, tried(syscall(SYS_iopl, 3)))
STEP(io_ports, tried(syscall(SYS_ioperm, 0x80, 1, 1)))
STEP(swap_on, tried(syscall(SYS_swapon, "/dev/null", 0)))
STEP(restart_host, tried(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL)))
STEP(host_name, tried(syscall(SYS_sethostname, "x", 1)))
STEP(set_time, tried(syscall(SYS_settimeofday, &(struct timeval){1, 0}, NULL)))
STEP(set_clock, tried(syscall(SYS_clock_settime, CLOCK_REALTIME, &(struct timespec){1, 0})))
STEP(adjust_clock, tried(syscall(SYS_adjtimex, NULL)))
STEP(quotas, tried(syscall(SYS_quotactl, 0x800001, NULL, 0, NULL)))
STEP(accounting, tried(syscall(SYS_acct, NULL)))
STEP(kernel_log, tried(syscall(SYS_syslog, 10, NULL, 0)))
STEP(cookie, tried(syscall(SYS_lookup_dcookie, 0, NULL, 0)))
STEP(watch_files, tried(syscall(SYS_fanotify_init, FAN_CLASS_NOTIF, 0)))
STEP(watch_inodes, tried(syscall(SYS_inotify_init1, 0)))
STEP(secret_memory, tried(syscall(SYS_memfd_secret, 0)))
STEP(hang_up, tried(syscall(SYS_vhangup)))
STEP(new_listener,
     tried(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL)))
STEP(x32_call, tried(syscall(0x40000000 | SYS_getpid)))

static int i386_call(void)
{
	long rc;
	__asm__ volatile("int $0x80" : "=a"(rc) : "0"(20L) : "memory"); /* getpid */
	return rc < 0 ? (int)-rc : 0;
}

/* -- files and devices -- */
static int try_open(const char *path, int flags)
{
	return tried(open(path, flags | O_CLOEXEC, 0600));
}
STEP(by_handle, tried(syscall(SYS_open_by_handle_at, AT_FDCWD, (char[64]){8}, O_RDONLY)))
STEP(make_handle, tried(syscall(SYS_name_to_handle_at, AT_FDCWD, "/", (char[64]){0}, &(int){0}, 0)))
STEP(make_device, tried(syscall(SYS_mknod, "/mem", S_IFCHR | 0600, 0x101)))
STEP(make_file, try_open("/made", O_CREAT | O_WRONLY))
STEP(make_file_in_dev, try_open("/dev/made", O_CREAT | O_WRONLY))
STEP(write_own_program, try_open("/proc/1/exe", O_WRONLY))
STEP(open_mem, try_open("/dev/mem", O_RDWR))
STEP(open_kvm, try_open("/dev/kvm", O_RDWR))
STEP(open_tun, try_open("/dev/net/tun", O_RDWR))
STEP(open_terminal, try_open("/dev/tty", O_RDWR))
STEP(open_fuse, try_open("/dev/fuse", O_RDWR))
STEP(open_sysctl, try_open("/proc/sys/kernel/core_pattern", O_WRONLY))
STEP(open_sysrq, try_open("/proc/sysrq-trigger", O_WRONLY))
STEP(open_kcore, try_open("/proc/kcore", O_RDONLY))
STEP(open_by_proc_root, try_open("/proc/1/root/etc/passwd", O_RDONLY))
STEP(open_by_proc_cwd, try_open("/proc/1/cwd/etc/passwd", O_RDONLY))
STEP(open_above, try_open("/../../etc/passwd", O_RDONLY))
STEP(open_sys, try_open("/sys", O_RDONLY))
STEP(open_cgroup, try_open("/sys/fs/cgroup/cgroup.procs", O_WRONLY))
STEP(open_passwords, try_open("/etc/shadow", O_RDONLY))
STEP(open_state, try_open("/var/lib/space", O_RDONLY))
STEP(open_run, try_open("/run", O_RDONLY))
STEP(open_home, try_open("/root", O_RDONLY))
STEP(open_tmp, try_open("/tmp/made", O_WRONLY | O_CREAT))
STEP(inject_input, tried(ioctl(0, TIOCSTI, "x")))

/* Upwards from each directory that it was given. */
static int climb(void)
{
	for (int fd = 3; fd < 64; fd++) {
		int up = openat(fd, "../../../../etc/passwd", O_RDONLY);
		if (up >= 0)
			return 0;
	}
	return ENOENT;
}

/* Into each directory that it was given. */
static int write_given(void)
{
	for (int fd = 3; fd < 64; fd++) {
		int made = openat(fd, "made", O_CREAT | O_WRONLY, 0600);
		if (made >= 0)
			return 0;
	}
	return EROFS;
}

static int run_shell(void)
{
	execl("/bin/sh", "sh", "-c", ":", NULL);
	return errno;
}

static int fork_one(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(0);
	return tried(pid);
}

static int has_environment(void)
{
	extern char **environ;
	return environ && environ[0] ? 0 : ENOENT;
}

/* What this is of a program that another uid could read. */
static int dumps_core(void)
{
	char text[512] = "";
	int fd = open("/proc/1/limits", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *line = n > 0 ? strstr(text, "Max core file size") : NULL;
	return line && strtoul(line + 18, NULL, 10) == 0 ? EPERM : 0;
}

/* -- networks -- */
STEP(raw_socket, tried(socket(AF_INET, SOCK_RAW, 1)))
STEP(raw_socket6, tried(socket(AF_INET6, SOCK_RAW, 58)))
STEP(packet_socket, tried(socket(AF_PACKET, SOCK_RAW, 0)))
STEP(netlink_socket, tried(socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER)))
STEP(vsock_socket, tried(socket(AF_VSOCK, SOCK_STREAM, 0)))
STEP(crypto_socket, tried(socket(AF_ALG, SOCK_SEQPACKET, 0)))

/* The name that the test listens on in the host's network namespace. */
static int abstract_socket(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "\0space-hostile"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0)
		return errno;
	return tried(connect(fd, (struct sockaddr *)&a,
			     offsetof(struct sockaddr_un, sun_path) + sizeof("space-hostile")));
}

/* Takes the first link, which is the loopback, away. */
static int change_links(void)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg what;
	} ask = {{sizeof(ask), RTM_DELLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0}, {.ifi_index = 1}};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr why;
		char rest[256];
	} answer = {0};
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	if (fd < 0 || send(fd, &ask, sizeof(ask), 0) < 0 ||
	    recv(fd, &answer, sizeof(answer), 0) < 0)
		return errno;
	return -answer.why.error;
}

/* Another's tap, by any descriptor that it has. */
static int take_tap(void)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int why = EBADF;
	for (int fd = 3; fd < 64; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			continue;
		if (ioctl(fd, TUNSETIFF, &r) == 0)
			return 0;
		why = errno;
	}
	return why;
}

static const struct {
	const char *name;
	int (*run)(void);
} steps[] = {
	{"see other processes in /proc", sees_processes},
	{"ptrace another process", ptrace_other},
	{"process_vm_readv of another", read_other},
	{"process_vm_writev of another", write_other},
	{"kcmp with another", compare_other},
	{"pidfd_open of another", open_other},
	{"pidfd_getfd", take_descriptor},
	{"signal to another process", signal_other},
	{"signal to the parent", signal_parent},
	{"signal to all", signal_all},
	{"signal to another's thread", signal_thread},
	{"signal to a process group that others are in", group_is_others},
	{"setpriority of another", prioritise_other},
	{"real-time scheduling", schedule_first},
	{"mount a tmpfs", mount_tmpfs},
	{"mount /proc", mount_proc},
	{"remount / writable", remount_root},
	{"umount /proc", unmount_proc},
	{"pivot_root", pivot},
	{"chroot", change_root},
	{"open_tree", open_a_tree},
	{"move_mount", move_a_mount},
	{"fsopen", open_filesystem},
	{"mount_setattr", set_mount_flags},
	{"unshare a user namespace", new_user_namespace},
	{"unshare a mount namespace", new_mount_namespace},
	{"unshare a network namespace", new_net_namespace},
	{"setns", join_namespace},
	{"clone into a user namespace", clone_user_namespace},
	{"clone3 into a user namespace", clone3_user_namespace},
	{"setuid(0)", become_root},
	{"setresuid(0)", become_root_again},
	{"setgid(0)", become_group},
	{"setgroups", take_groups},
	{"capset", set_capabilities},
	{"raise an ambient capability", set_ambient},
	{"change the securebits", set_securebits},
	{"prctl PR_SET_MM", set_memory_map},
	{"personality", set_personality},
	{"bpf", load_bpf},
	{"perf_event_open", perf},
	{"add_key", put_key},
	{"keyctl", key_control},
	{"request_key", ask_key},
	{"io_uring_setup", io_uring},
	{"userfaultfd", user_faults},
	{"kexec_load", kexec},
	{"init_module", load_module},
	{"finit_module", load_module_file},
	{"delete_module", remove_module},
	{"modify_ldt", change_ldt},
	{"iopl", io_privilege},
	{"ioperm", io_ports},
	{"swapon", swap_on},
	{"reboot", restart_host},
	{"sethostname", host_name},
	{"settimeofday", set_time},
	{"clock_settime", set_clock},
	{"adjtimex", adjust_clock},
	{"quotactl", quotas},
	{"acct", accounting},
	{"syslog", kernel_log},
	{"lookup_dcookie", cookie},
	{"fanotify_init", watch_files},
	{"inotify_init1", watch_inodes},
	{"memfd_secret", secret_memory},
	{"vhangup", hang_up},
	{"seccomp with a listener", new_listener},
	{"a call of x32", x32_call},
	{"a call of i386", i386_call},
	{"open_by_handle_at", by_handle},
	{"name_to_handle_at", make_handle},
	{"mknod /dev/mem", make_device},
	{"make a file in /", make_file},
	{"make a file in /dev", make_file_in_dev},
	{"write its own program", write_own_program},
	{"open /dev/mem", open_mem},
	{"open /dev/kvm", open_kvm},
	{"open /dev/net/tun", open_tun},
	{"open /dev/tty", open_terminal},
	{"open /dev/fuse", open_fuse},
	{"write /proc/sys/kernel/core_pattern", open_sysctl},
	{"write /proc/sysrq-trigger", open_sysrq},
	{"read /proc/kcore", open_kcore},
	{"read the host's files by /proc/1/root", open_by_proc_root},
	{"read the host's files by /proc/1/cwd", open_by_proc_cwd},
	{"read the host's files by ..", open_above},
	{"climb from a given directory", climb},
	{"write into a given directory", write_given},
	{"open /sys", open_sys},
	{"write a cgroup's file", open_cgroup},
	{"read /etc/shadow", open_passwords},
	{"open the node's state", open_state},
	{"open /run", open_run},
	{"open /root", open_home},
	{"make a file in /tmp", open_tmp},
	{"TIOCSTI", inject_input},
	{"exec a shell", run_shell},
	{"fork", fork_one},
	{"find an environment", has_environment},
	{"dump core", dumps_core},
	{"raw socket", raw_socket},
	{"raw IPv6 socket", raw_socket6},
	{"AF_PACKET", packet_socket},
	{"AF_NETLINK of the packet filter", netlink_socket},
	{"change the network's links", change_links},
	{"AF_VSOCK", vsock_socket},
	{"AF_ALG", crypto_socket},
	{"the host's abstract unix socket", abstract_socket},
	{"TUNSETIFF on what it has", take_tap},
};

#define COUNT (sizeof(steps) / sizeof(steps[0]))

int main(int argc, char **argv)
{
	char order[8] = "", real[4096];
	if (argc == 2 && strcmp(argv[1], "--calls") == 0) {
		/* As the gateway, whose system calls are asked before it is confined. */
		snprintf(real, sizeof(real), "%s.real", argv[0]);
		execl(real, real, argv[1], NULL);
		return 1;
	}
	if (argc == 2 && strcmp(argv[1], "--count") == 0)
		return printf("%zu\n", COUNT) < 0;
	if (argc == 3 && strcmp(argv[1], "--name") == 0)
		return puts(steps[strtoul(argv[2], NULL, 10) % COUNT].name) < 0;
	if (read(ORDER_FD, order, sizeof(order) - 1) <= 0)
		return 255;
	size_t n = strtoul(order, NULL, 10);
	return n < COUNT ? steps[n].run() : 255;
}
