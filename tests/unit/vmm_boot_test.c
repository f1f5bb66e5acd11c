/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm_start() for real: QEMU boots a kernel of 150 bytes, which is made here. It writes a mark into
 * RAM, says on the console which virtio devices it sees, and restarts the machine when it is sent
 * an 'r'. Needs root and QEMU; says so and skips without.
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "vmm/vmm.h"

#define DEADLINE_MS 60000
#define TEST_UID    64998
#define CODE_AT     0x100000
#define MARK        "space-ram-mark"
#define NOTE_PHYS32 18 /* Source: Xen, public/elfnote.h, XEN_ELFNOTE_PHYS32_ENTRY */

extern const uint8_t boot_test_code[], boot_test_end[];

/* 32-bit, flat, no paging, as PVH enters. MARK is made from MARK minus one in each byte, so that
   the kernel's own image does not hold it. Device numbers: 1 network, 2 block, 4 entropy;
   virtio-mmio transports are 512 bytes apart. */
__asm__(".pushsection .rodata\n"
	".globl boot_test_code, boot_test_end\n"
	".hidden boot_test_code, boot_test_end\n"
	".code32\n"
	"boot_test_code:\n"
	"	call 1f\n"
	"1:	pop %ebp\n"
	"	lea (mark - 1b)(%ebp), %esi\n"
	"	mov $0x200000, %edi\n"
	"2:	lodsb\n"
	"	inc %al\n"
	"	stosb\n"
	"	cmp $1, %al\n"
	"	jne 2b\n"
	"	mov $0xfeb00008, %esi\n"
	"	mov $4, %ecx\n"
	"3:	mov (%esi), %eax\n"
	"	add $0x30, %al\n"
	"	mov $0x3f8, %dx\n"
	"	out %al, %dx\n"
	"	add $512, %esi\n"
	"	loop 3b\n"
	"	mov $10, %al\n"
	"	out %al, %dx\n"
	"4:	mov $0x3fd, %dx\n"
	"	in %dx, %al\n"
	"	test $1, %al\n"
	"	jz 4b\n"
	"	mov $0x3f8, %dx\n"
	"	in %dx, %al\n"
	"	cmp $0x72, %al\n"
	"	jne 4b\n"
	"	push $0\n"
	"	push $0\n"
	"	lidt (%esp)\n"
	"	int3\n"
	"mark:	.ascii \"ro`bd,q`l,l`qj\"\n"
	"	.byte 0\n"
	".code64\n"
	"boot_test_end:\n"
	".popsection\n");

struct machine {
	uv_loop_t loop;
	uv_timer_t deadline;
	uv_poll_t console_poll;
	int console;
	struct vmm *vmm;
	char dir[40];
	char *kernel, *initramfs;
	int root_fd, scratch_fd;
	char said[64];
	size_t said_len;
	bool running, exited, dumped;
	struct err why, dump_why;
};

static void put_kernel(const char *path)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr load, note;
		Elf64_Nhdr note_head;
		char note_name[4];
		uint64_t entry;
		uint8_t code[256];
	} k = {
		.head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				     EV_CURRENT},
			 .e_type = ET_EXEC,
			 .e_machine = EM_X86_64,
			 .e_version = EV_CURRENT,
			 .e_entry = CODE_AT,
			 .e_phoff = sizeof(Elf64_Ehdr),
			 .e_ehsize = sizeof(Elf64_Ehdr),
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_phnum = 2},
		.load = {.p_type = PT_LOAD,
			 .p_flags = PF_R | PF_X,
			 .p_vaddr = CODE_AT,
			 .p_paddr = CODE_AT,
			 .p_filesz = sizeof(k.code),
			 .p_memsz = sizeof(k.code),
			 .p_align = 1},
		.note = {.p_type = PT_NOTE, .p_filesz = 24, .p_memsz = 24, .p_align = 4},
		.note_head = {.n_namesz = 4, .n_descsz = 8, .n_type = NOTE_PHYS32},
		.note_name = "Xen",
		.entry = CODE_AT,
	};
	size_t len = (size_t)(boot_test_end - boot_test_code);

	k.load.p_offset = (size_t)((uint8_t *)k.code - (uint8_t *)&k);
	k.note.p_offset = (size_t)((uint8_t *)&k.note_head - (uint8_t *)&k);
	assert_true(len <= sizeof(k.code));
	memcpy(k.code, boot_test_code, len);
	assert_int_equal(file_write_atomic(path, &k, sizeof(k), 0644), 0);
}

static int disk(const struct machine *m, const char *name, int flags)
{
	auto_free char *path = str_printf("%s/%s", m->dir, name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void on_deadline(uv_timer_t *t)
{
	(void)t;
	fail_msg("nothing happened");
}

static void on_running(void *user)
{
	((struct machine *)user)->running = true;
}

static void on_exited(void *user, const struct err *why)
{
	struct machine *m = user;

	m->exited = true;
	m->why = *why;
	m->vmm = NULL;
}

static void on_dumped(void *user, const struct err *why)
{
	struct machine *m = user;

	m->dumped = true;
	m->dump_why = *why;
}

static void on_console(uv_poll_t *poll, int status, int events)
{
	struct machine *m = poll->data;
	ssize_t n = read(m->console, m->said + m->said_len, sizeof(m->said) - 1 - m->said_len);

	(void)status;
	(void)events;
	if (n <= 0)
		uv_poll_stop(poll);
	else
		m->said_len += (size_t)n;
}

static void need(const struct vmm_probe *host)
{
	if (geteuid() == 0 && host->qemu_version[0])
		return;
	print_message("needs root and QEMU\n");
	skip();
}

static const struct vmm_probe *host_once(void)
{
	static struct vmm_probe host;

	if (host.accel == VMM_KVM && host.tsc_khz == 0 && host.qemu_version[0] == '\0')
		vmm_probe(&host);
	host.accel = VMM_TCG;
	if (host.tsc_khz == 0)
		host.tsc_khz = 1000000; /* this kernel has no clock */
	return &host;
}

static void machine_start(struct machine *m, const char *kernel)
{
	static const struct vmm_events events = {on_running, on_exited};
	struct err e = {0};
	int ends[2];

	memset(m, 0, sizeof(*m));
	strcpy(m->dir, "/tmp/space-boot-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	assert_int_equal(chmod(m->dir, 0755), 0);
	m->kernel = str_printf("%s/%s", m->dir, kernel);
	m->initramfs = str_printf("%s/initramfs", m->dir);
	auto_free char *good = str_printf("%s/kernel", m->dir);
	put_kernel(good);
	assert_int_equal(file_write_atomic(m->initramfs, "none", 4, 0644), 0);
	m->root_fd = disk(m, "root", O_RDONLY);
	m->scratch_fd = disk(m, "scratch", O_RDWR);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	auto_fd int theirs = ends[1];
	m->console = ends[0];
	uv_loop_init(&m->loop);
	uv_timer_init(&m->loop, &m->deadline);
	uv_timer_start(&m->deadline, on_deadline, DEADLINE_MS, 0);
	uv_poll_init(&m->loop, &m->console_poll, m->console);
	m->console_poll.data = m;
	uv_poll_start(&m->console_poll, UV_READABLE, on_console);
	const struct vmm_config config = {
		.id = "boot-test",
		.cpus = 1,
		.ram_bytes = (uint64_t)VMM_RAM_MIN_MIB << 20,
		.kernel = m->kernel,
		.initramfs = m->initramfs,
		.root_fd = m->root_fd,
		.scratch_fd = m->scratch_fd,
		.tap_fd = -1,
		.console_fd = theirs,
		.netns_fd = -1,
		.uid = TEST_UID,
	};
	m->vmm = vmm_start(&m->loop, host_once(), &config, &events, m, &e);
	if (!m->vmm)
		fail_msg("%s", e.text);
}

static void wait_for(struct machine *m, const bool *flag)
{
	while (!*flag)
		uv_run(&m->loop, UV_RUN_ONCE);
}

static void wait_for_line(struct machine *m)
{
	while (!strchr(m->said, '\n')) {
		if (m->exited)
			fail_msg("QEMU is gone: %s", m->why.text);
		uv_run(&m->loop, UV_RUN_ONCE);
	}
}

/* After the end: no process, no handle. */
static void machine_done(struct machine *m)
{
	wait_for(m, &m->exited);
	uv_close((uv_handle_t *)&m->deadline, NULL);
	uv_close((uv_handle_t *)&m->console_poll, NULL);
	uv_run(&m->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&m->loop), 0);
	close(m->console);
	close(m->root_fd);
	close(m->scratch_fd);
	free(m->kernel);
	free(m->initramfs);
	assert_int_equal(dir_remove_all(m->dir), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void guest_runs_and_sees_its_devices(void **state)
{
	struct machine m;

	(void)state;
	need(host_once());
	machine_start(&m, "kernel");
	wait_for(&m, &m.running);
	wait_for_line(&m);
	assert_string_equal(m.said, "0422\n");
	vmm_kill(m.vmm);
	machine_done(&m);
	assert_int_equal(m.why.code, ECANCELED);
}

static void restart_by_the_guest_is_a_clean_end(void **state)
{
	struct machine m;

	(void)state;
	need(host_once());
	machine_start(&m, "kernel");
	wait_for_line(&m);
	wait_for(&m, &m.running); /* the console may be ahead of QMP */
	assert_int_equal(write(m.console, "r", 1), 1);
	machine_done(&m);
	assert_true(m.running);
	assert_int_equal(m.why.code, 0);
	assert_non_null(strstr(m.why.text, "guest-reset"));
}

static void murder_is_reported(void **state)
{
	struct machine m;

	(void)state;
	need(host_once());
	int before = count_fds();
	machine_start(&m, "kernel");
	wait_for(&m, &m.running);
	kill(vmm_pid(m.vmm), SIGKILL);
	machine_done(&m);
	assert_int_equal(m.why.code, EIO);
	assert_non_null(strstr(m.why.text, "signal 9"));
	assert_int_equal(count_fds(), before);
}

static void early_kill_is_safe(void **state)
{
	struct machine m;

	(void)state;
	need(host_once());
	machine_start(&m, "kernel");
	vmm_kill(m.vmm);
	vmm_kill(m.vmm);
	machine_done(&m);
	assert_false(m.running);
	assert_int_equal(m.why.code, ECANCELED);
}

static void failure_tells_what_qemu_said(void **state)
{
	struct machine m;

	(void)state;
	need(host_once());
	machine_start(&m, "no-such-kernel");
	machine_done(&m);
	assert_false(m.running);
	assert_int_equal(m.why.code, EIO);
	assert_non_null(strstr(m.why.text, "could not open kernel file"));
}

static void process_is_confined(void **state)
{
	struct machine m;
	auto_free char *status = NULL;
	size_t len;

	(void)state;
	need(host_once());
	machine_start(&m, "kernel");
	wait_for(&m, &m.running);
	auto_free char *path = str_printf("/proc/%d/status", (int)vmm_pid(m.vmm));
	assert_int_equal(file_read(path, 65536, &status, &len), 0);
	vmm_kill(m.vmm);
	machine_done(&m);
	assert_non_null(strstr(status, "\nUid:\t64998\t64998\t64998\t64998\n"));
	assert_non_null(strstr(status, "\nCapEff:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nCapBnd:\t0000000000000000\n"));
	assert_non_null(strstr(status, "\nNoNewPrivs:\t1\n"));
	assert_non_null(strstr(status, "\nSeccomp:\t2\n"));
}

static void memory_dump_holds_the_guests_ram(void **state)
{
	struct machine m;
	auto_free char *image = NULL;
	size_t len;

	(void)state;
	need(host_once());
	machine_start(&m, "kernel");
	auto_free char *path = str_printf("%s/dump", m.dir);
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_dumped, &m), -EBUSY);
	wait_for(&m, &m.running);
	wait_for_line(&m);
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_dumped, &m), 0);
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_dumped, &m), -EBUSY);
	wait_for(&m, &m.dumped);
	assert_int_equal(m.dump_why.code, 0);
	assert_int_equal(file_read(path, 256 << 20, &image, &len), 0);
	assert_non_null(memmem(image, len, MARK, strlen(MARK)));
	assert_int_equal(write(m.console, "r", 1), 1); /* it still runs */
	machine_done(&m);
	assert_int_equal(m.why.code, 0);
}

static void dump_ends_with_the_machine(void **state)
{
	struct machine m;

	(void)state;
	need(host_once());
	machine_start(&m, "kernel");
	wait_for(&m, &m.running);
	auto_free char *path = str_printf("%s/dump", m.dir);
	assert_int_equal(vmm_dump_memory(m.vmm, path, on_dumped, &m), 0);
	vmm_kill(m.vmm);
	machine_done(&m);
	assert_true(m.dumped);
	assert_int_not_equal(m.dump_why.code, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guest_runs_and_sees_its_devices),
		cmocka_unit_test(restart_by_the_guest_is_a_clean_end),
		cmocka_unit_test(murder_is_reported),
		cmocka_unit_test(early_kill_is_safe),
		cmocka_unit_test(failure_tells_what_qemu_said),
		cmocka_unit_test(process_is_confined),
		cmocka_unit_test(memory_dump_holds_the_guests_ram),
		cmocka_unit_test(dump_ends_with_the_machine),
	};

	return cmocka_run_group_tests_name("vmm_boot", tests, NULL, NULL);
}
