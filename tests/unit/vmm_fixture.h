/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real monitors for tests: QEMU runs a kernel of some 200 bytes, which is made here. It writes a
 * mark into RAM, says on the console which virtio devices it sees, and then does what it is told
 * there, by letters. Needs root and QEMU; need() says so and skips without.
 */
#pragma once

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
#define MARK_AT     0x200000
#define COUNT_AT    0x300000
#define NOTE_PHYS32 18 /* Source: Xen, public/elfnote.h, XEN_ELFNOTE_PHYS32_ENTRY */
#define RAM_BYTES   ((uint64_t)VMM_RAM_MIN_MIB << 20)

extern const uint8_t boot_test_code[], boot_test_end[];

/* 32-bit, flat, no paging, as PVH enters. MARK is made from MARK minus one in each byte, so that
   the kernel's own image does not hold it. Device numbers: 1 network, 2 block, 4 entropy;
   virtio-mmio transports are 512 bytes apart. Letters: r restarts, i counts up and says the count,
   m says the mark's first letter, z clears the mark's page. */
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
	"	movb $0x30, 0x300000\n"
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
	"	je 9f\n"
	"	cmp $0x69, %al\n"
	"	je 5f\n"
	"	cmp $0x6d, %al\n"
	"	je 6f\n"
	"	cmp $0x7a, %al\n"
	"	jne 4b\n"
	"	mov $0x200000, %edi\n"
	"	xor %eax, %eax\n"
	"	mov $1024, %ecx\n"
	"	rep stosl\n"
	"	jmp 6f\n"
	"5:	incb 0x300000\n"
	"	mov 0x300000, %al\n"
	"	jmp 7f\n"
	"6:	mov 0x200000, %al\n"
	"7:	or $0x20, %al\n" /* nothing is a space */
	"	out %al, %dx\n"
	"	jmp 4b\n"
	"9:	push $0\n"
	"	push $0\n"
	"	lidt (%esp)\n"
	"	int3\n"
	"mark:	.ascii \"ro`bd,q`l,l`qj\"\n"
	"	.byte 0\n"
	".code64\n"
	"boot_test_end:\n"
	".popsection\n");

/* A place for everything that one test makes. */
struct place {
	uv_loop_t loop;
	uv_timer_t deadline;
	char path[64];
	unsigned machines; /* made so far */
	char *kernel, *initramfs, *root;
};

struct machine {
	struct place *place;
	char *dir; /* the monitor's */
	uv_poll_t console_poll;
	int console, scratch_fd;
	struct vmm *vmm;
	char said[64];
	size_t said_len;
	bool done, exited;
	struct err result; /* of the last call */
	struct err why;
};

/* What a freeze gave. */
struct frozen_pair {
	char *memory, *state;
};

static inline void put_kernel(const char *path)
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

static inline void need(const struct vmm_probe *host)
{
	if (geteuid() == 0 && host->qemu_version[0])
		return;
	print_message("needs root and QEMU\n");
	skip();
}

static inline const struct vmm_probe *host_once(void)
{
	static struct vmm_probe host;

	if (host.accel == VMM_KVM && host.tsc_khz == 0 && host.qemu_version[0] == '\0')
		vmm_probe(&host);
	host.accel = VMM_TCG;
	if (host.tsc_khz == 0)
		host.tsc_khz = 1000000; /* this kernel has no clock */
	return &host;
}

static inline void on_deadline(uv_timer_t *t)
{
	(void)t;
	fail_msg("nothing happened");
}

static inline char *place_path(const struct place *p, const char *name)
{
	return str_printf("%s/%s", p->path, name);
}

/* Where all places of this program are. Monitors outlive who started them, a test that fails too.
 */
static char places[32];

static inline int places_init(void **state)
{
	(void)state;
	strcpy(places, "/tmp/space-vmm-XXXXXX");
	return mkdtemp(places) ? chmod(places, 0711) : -1;
}

static inline int places_done(void **state)
{
	(void)state;
	vmm_sweep(places, NULL, 0, NULL);
	return dir_remove_all(places);
}

static inline void place_init(struct place *p)
{
	static const char zeroes[4096];

	memset(p, 0, sizeof(*p));
	snprintf(p->path, sizeof(p->path), "%s/XXXXXX", places);
	assert_non_null(mkdtemp(p->path));
	assert_int_equal(chmod(p->path, 0711), 0);
	auto_free char *run = place_path(p, "run"), *images = place_path(p, "images");
	assert_int_equal(mkdir(run, 0700), 0);
	assert_int_equal(mkdir(images, 0700), 0);
	p->kernel = place_path(p, "kernel");
	p->initramfs = place_path(p, "initramfs");
	p->root = place_path(p, "images/root");
	put_kernel(p->kernel);
	assert_int_equal(file_write_atomic(p->initramfs, "none", 4, 0644), 0);
	assert_int_equal(file_write_atomic(p->root, zeroes, sizeof(zeroes), 0444), 0);
	uv_loop_init(&p->loop);
	uv_timer_init(&p->loop, &p->deadline);
	uv_timer_start(&p->deadline, on_deadline, DEADLINE_MS, 0);
}

/* Nothing is left of any machine. */
static inline void place_done(struct place *p)
{
	uv_close((uv_handle_t *)&p->deadline, NULL);
	uv_run(&p->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&p->loop), 0);
	free(p->kernel);
	free(p->initramfs);
	free(p->root);
	assert_int_equal(dir_remove_all(p->path), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static inline void on_done(void *user, const struct err *why)
{
	struct machine *m = user;

	assert_false(m->exited);
	m->done = true;
	m->result = *why;
}

static inline void on_exited(void *user, const struct err *why)
{
	struct machine *m = user;

	m->exited = true;
	m->why = *why;
	m->vmm = NULL;
}

static inline void on_console(uv_poll_t *poll, int status, int events)
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

static inline int new_file(const char *path, mode_t mode, off_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(ftruncate(fd, size), 0);
	return fd;
}

static inline void machine_watch_console(struct machine *m)
{
	struct err e = {0};

	m->console = vmm_console(m->vmm, &e);
	if (m->console < 0)
		fail_msg("%s", e.text);
	uv_poll_init(&m->place->loop, &m->console_poll, m->console);
	m->console_poll.data = m;
	uv_poll_start(&m->console_poll, UV_READABLE, on_console);
}

static const struct vmm_events machine_events = {on_exited};

/* Opens a waiting monitor. */
static inline void machine_open(struct machine *m, struct place *p, bool boots)
{
	struct err e = {0};

	memset(m, 0, sizeof(*m));
	m->place = p;
	m->console = -1;
	m->dir = str_printf("%s/run/%u", p->path, ++p->machines);
	assert_int_equal(mkdir(m->dir, 0711), 0);
	assert_int_equal(chmod(m->dir, 0711), 0);
	auto_free char *scratch = str_printf("%s/scratch%u", p->path, p->machines);
	m->scratch_fd = new_file(scratch, 0600, 0);
	const struct vmm_config config = {
		.id = "boot-test",
		.dir = m->dir,
		.scratch_fd = m->scratch_fd,
		.tap_fd = -1,
		.netns_fd = -1,
		.uid = TEST_UID,
		.boots = boots,
	};
	m->vmm = vmm_open(&p->loop, host_once(), &config, &machine_events, m, &e);
	if (!m->vmm)
		fail_msg("%s", e.text);
	machine_watch_console(m);
	assert_int_equal(ftruncate(m->scratch_fd, 1 << 20), 0); /* it was empty until now */
}

static inline struct vmm_machine machine_size(const struct place *p)
{
	return (struct vmm_machine){.cpus = 1, .ram_bytes = RAM_BYTES, .root = p->root};
}

static inline void wait_for(struct place *p, const bool *flag)
{
	while (!*flag)
		uv_run(&p->loop, UV_RUN_ONCE);
}

/* The last call's result. */
static inline int machine_await(struct machine *m)
{
	wait_for(m->place, &m->done);
	m->done = false;
	return m->result.code;
}

static inline void machine_must(struct machine *m)
{
	if (machine_await(m) != 0)
		fail_msg("%s", m->result.text);
}

static inline void machine_boot(struct machine *m, struct place *p)
{
	const struct vmm_kernel kernel = {.kernel = p->kernel, .initramfs = p->initramfs};
	const struct vmm_machine size = machine_size(p);
	struct err e = {0};

	machine_open(m, p, true);
	if (vmm_boot(m->vmm, &size, &kernel, on_done, m, &e) < 0)
		fail_msg("%s", e.text);
}

/* Until the console has said text, all of it. */
static inline void machine_expect(struct machine *m, const char *text)
{
	while (m->said_len < strlen(text)) {
		if (m->exited)
			fail_msg("QEMU is gone: %s", m->why.text);
		uv_run(&m->place->loop, UV_RUN_ONCE);
	}
	assert_string_equal(m->said, text);
	memset(m->said, 0, sizeof(m->said));
	m->said_len = 0;
}

static inline void machine_tell(struct machine *m, const char *letters, const char *answer)
{
	assert_int_equal(write(m->console, letters, strlen(letters)), strlen(letters));
	machine_expect(m, answer);
}

/* Booted, and heard of. */
static inline void machine_up(struct machine *m, struct place *p)
{
	machine_boot(m, p);
	machine_must(m);
	machine_expect(m, "0422\n");
}

static inline void machine_close(struct machine *m)
{
	wait_for(m->place, &m->exited);
	uv_close((uv_handle_t *)&m->console_poll, NULL);
	uv_run(&m->place->loop, UV_RUN_NOWAIT);
	close(m->console);
	if (m->scratch_fd >= 0)
		close(m->scratch_fd);
	free(m->dir);
}

static inline void machine_kill(struct machine *m)
{
	vmm_kill(m->vmm);
	machine_close(m);
	assert_int_equal(m->why.code, ECANCELED);
}

static inline int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
