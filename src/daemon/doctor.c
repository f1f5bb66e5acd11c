/* SPDX-License-Identifier: Apache-2.0 */
/* Each check tries the thing itself where that is cheap, rather than look for its signs. */
#include "daemon/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/gateway.h"
#include "daemon/node.h"
#include "daemon/paths.h"
#include "image/image.h"
#include "jail/userns.h"
#include "net/slot.h"
#include "vmm/vmm.h"

#define QEMU_MIN 9 /* major version; frozen machines are restored as older ones can't */

enum grade { OK, WARN, FAIL };

static const char *const grade_names[] = {"ok", "warn", "FAIL"};

static void report(json_t *list, enum grade grade, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void report(json_t *list, enum grade grade, const char *what, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "grade", grade_names[grade],
					      "check", what, "detail", text));
}

static void check_host(json_t *list)
{
	struct utsname u;
	uname(&u);
	if (str_eq(u.machine, "x86_64"))
		report(list, OK, "host", "Linux %s, %ld CPUs", u.release,
		       sysconf(_SC_NPROCESSORS_ONLN));
	else
		report(list, FAIL, "host", "%s: SPACE runs on x86_64 alone", u.machine);
	uid_t outside;
	if (userns_is_other(&outside))
		report(list, OK, "user", "uid %u, root of a user namespace", outside);
	else
		report(list, OK, "user", "root");
}

static void check_vmm(json_t *list)
{
	struct vmm_probe p;
	vmm_probe(&p);
	if (!p.qemu_version[0])
		report(list, FAIL, "qemu",
		       "qemu-system-x86_64 is not installed: install qemu-system-x86 from bookworm-backports "
		       "(./quickstart does)");
	else if (strtol(p.qemu_version, NULL, 10) < QEMU_MIN)
		report(list, FAIL, "qemu",
		       "%s is too old, %d is the least: install qemu-system-x86 from bookworm-backports "
		       "(./quickstart does)",
		       p.qemu_version, QEMU_MIN);
	else
		report(list, OK, "qemu", "%s, %s", p.qemu_version,
		       p.accel == VMM_KVM ? "with KVM" : "with software emulation (TCG)");
	if (p.kvm_usable)
		report(list, OK, "kvm", "usable");
	else
		report(list, WARN, "kvm",
		       "%s; microVMs are emulated in software: isolated as well, some ten times slower",
		       p.kvm_present ? p.kvm_reason : "/dev/kvm is not there");
	if (p.tsc_khz)
		report(list, OK, "clock", "TSC at %u.%03u MHz", p.tsc_khz / 1000, p.tsc_khz % 1000);
	else
		report(list, WARN, "clock",
		       "the TSC is no clock here; guests keep time by slower means");
}

static void check_slot(json_t *list)
{
	struct slot slot;
	struct err e;
	if (access("/dev/net/tun", R_OK | W_OK) < 0) {
		report(list, FAIL, "network",
		       "/dev/net/tun: %s; load the module tun, or: mknod /dev/net/tun c 10 200",
		       strerror(errno));
	} else if (slot_open(&slot, &e) < 0) {
		report(list, FAIL, "network", "can't make a slot: %s", e.text);
	} else {
		slot_close(&slot);
		report(list, OK, "network", "slots work: network namespace, tap, nftables");
	}
}

static void check_image(json_t *list, const struct paths *p)
{
	struct image img;
	struct err e;
	if (image_open(p->images, "base", &img, &e) < 0) {
		report(list, FAIL, "image", "%s", e.text);
		return;
	}
	report(list, OK, "image", "base, %ju MiB", (uintmax_t)(img.size_bytes >> 20));
	image_done(&img);
}

static void check_tools(json_t *list)
{
	static const char *const tools[] = {"/usr/bin/mmdebstrap", "/sbin/mke2fs", NULL};
	for (const char *const *t = tools; *t; t++)
		if (access(*t, X_OK) < 0)
			report(list, WARN, "tools",
			       "%s is missing: images can't be built (./quickstart installs it)",
			       *t);
}

static void check_space(json_t *list, const struct paths *p)
{
	struct statvfs st;
	if (statvfs(p->scratch, &st) < 0)
		return;
	uint64_t mib = (uint64_t)st.f_bavail * st.f_frsize >> 20;
	report(list, mib < 1024 ? WARN : OK, "disk", "%ju MiB free for sandboxes' disks in %s",
	       (uintmax_t)mib, p->scratch);
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
	report(list, ram < 2048 ? WARN : OK, "memory", "%ju MiB", (uintmax_t)ram);
}

static void check_limits(json_t *list)
{
	auto_free char *controllers = NULL;
	size_t len;
	if (file_read("/sys/fs/cgroup/cgroup.controllers", 4096, &controllers, &len) == 0 &&
	    strstr(controllers, "memory") && strstr(controllers, "cpu"))
		report(list, OK, "limits",
		       "cgroup v2 is there; SPACE does not use it yet: a microVM's memory and CPUs "
		       "are bounded by their size");
	else
		report(list, WARN, "limits",
		       "no cgroup v2 controllers: nothing bounds a monitor process beyond its "
		       "microVM's size");
}

static void check_daemon(json_t *list, const struct paths *p)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", p->socket);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool runs = fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;
	report(list, OK, "spaced", runs ? "running" : "not running; 'space' starts it when needed");
}

static int print(const json_t *list, bool json)
{
	size_t i;
	json_t *line;
	int failed = 0;
	json_array_foreach(list, i, line)
	{
		const char *grade = json_string_value(json_object_get(line, "grade"));
		failed |= str_eq(grade, grade_names[FAIL]);
		if (!json)
			printf("%-5s %-8s %s\n", grade,
			       json_string_value(json_object_get(line, "check")),
			       json_string_value(json_object_get(line, "detail")));
	}
	if (json) {
		auto_free char *text = json_dumps(list, JSON_INDENT(2));
		puts(text ? text : "[]");
	} else {
		puts(failed ? "sandboxes can't run here until what FAILs is mended"
			    : "sandboxes can run here");
	}
	return failed;
}

int doctor(bool json)
{
	auto_json json_t *list = json_array();
	struct paths p;
	struct err e;
	check_host(list);
	check_vmm(list);
	check_slot(list);
	if (paths_init(&p, &e) < 0) {
		report(list, FAIL, "state", "%s", e.text);
	} else {
		check_image(list, &p);
		check_space(list, &p);
		check_daemon(list, &p);
	}
	paths_done(&p);
	check_tools(list);
	check_limits(list);
	return print(list, json);
}

static int print_jail(const char *whose, char *text, const struct err *why)
{
	if (!text) {
		fprintf(stderr, "%s: %s\n", whose, why->text);
		return 1;
	}
	printf("%s\n", whose);
	for (const char *line = text; *line;) {
		size_t n = strcspn(line, "\n");
		printf("  %.*s\n", (int)n, line);
		line += n + (line[n] == '\n');
	}
	free(text);
	return 0;
}

int doctor_jail(void)
{
	struct vmm_probe host;
	struct paths p;
	struct err e = {0};
	uid_t uid;
	int failed = paths_init(&p, &e) < 0 || userns_ids(NODE_UIDS, NODE_UID_BASE, &uid, &e) < 0;
	if (failed) {
		fprintf(stderr, "spaced: %s\n", e.text);
	} else {
		vmm_probe(&host);
		failed |= print_jail("monitor", vmm_jail_text(&host, uid, &e), &e);
		failed |= print_jail("gateway", gateway_jail_text(&p, uid + 1, &e), &e);
	}
	paths_done(&p);
	return failed;
}
