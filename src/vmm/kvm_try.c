/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A /dev/kvm that opens is not yet one that can run a kernel: some machines emulate supervisor code
 * in software, slowly and without all instructions. So a guest of 100 bytes does in 64-bit
 * supervisor mode what a kernel does early on: CMPXCHG16B, XSAVE and XRSTOR, a breakpoint through
 * its IDT; then a loop whose time is compared with that of the same loop outside. It runs in a
 * child process, because a broken KVM may also hang; the child is killed at the deadline.
 *
 * Source: Linux, Documentation/virt/kvm/api.rst; Intel SDM volume 3, chapters 3 to 6.
 */
#include "vmm/kvm_try.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/kvm.h>

#include "base/cleanup.h"

#define DEADLINE_MS 1000 /* a nested KVM needs 300; only one that hangs takes it all */
#define CPUID_MAX   256

/* Guest-physical layout, mapped one to one. */
#define GUEST_SIZE    0x200000
#define PML4          0x1000
#define PDPT          0x2000
#define PD            0x3000
#define GDT           0x4000
#define IDT           0x5000
#define CODE          0x6000
#define STACK_TOP     0x9000
#define VECTOR_INT3   3
#define WORD_PORT     0x80
#define FEATURES_BYTE 0x41
#define LOOP_BYTE     0x42

#define LOOPS         3000000 /* as in the guest */
#define SLOW_FACTOR   8       /* an emulator is at least 30 times slower */
#define SLOW_SLACK_US 20000   /* for the guest's first faults */

#define PAGE_TABLE    0x3  /* present, writable */
#define PAGE_2M       0x83 /* and a page itself */
#define CR0_PE_ET_PG  0x80000011
#define CR4_PAE       0x20
#define EFER_LME_LMA  0x500
#define CODE_SELECTOR 8

extern const uint8_t kvm_try_code[], kvm_try_int3[], kvm_try_end[];

/* r15: the stage, for the report; r13: whether there is XSAVE; r14: breakpoints seen. */
__asm__(".pushsection .rodata\n"
	".globl kvm_try_code, kvm_try_int3, kvm_try_end\n"
	".hidden kvm_try_code, kvm_try_int3, kvm_try_end\n"
	"kvm_try_code:\n"
	"	mov $1, %r15d\n"
	"	mov $0x9000, %edi\n"
	"	xor %eax, %eax\n"
	"	xor %edx, %edx\n"
	"	mov $0x11, %ebx\n"
	"	mov $0x22, %ecx\n"
	"	lock cmpxchg16b (%rdi)\n"
	"	jnz 9f\n"
	"	cmpq $0x22, 8(%rdi)\n"
	"	jne 9f\n"
	"	mov $2, %r15d\n"
	"	test %r13d, %r13d\n"
	"	jz 1f\n"
	"	mov %cr4, %rax\n"
	"	or $0x40600, %rax\n" /* OSXSAVE, OSXMMEXCPT, OSFXSR */
	"	mov %rax, %cr4\n"
	"	xor %ecx, %ecx\n"
	"	xor %edx, %edx\n"
	"	mov $3, %eax\n" /* x87 and SSE */
	"	xsetbv\n"
	"	mov $0xa000, %edi\n"
	"	xsave64 (%rdi)\n"
	"	xrstor64 (%rdi)\n"
	"1:	mov $3, %r15d\n"
	"	xor %r14d, %r14d\n"
	"	int3\n"
	"	cmp $1, %r14d\n"
	"	jne 9f\n"
	"	mov $0x41, %al\n"
	"	out %al, $0x80\n"
	"	mov $4, %r15d\n"
	"	mov $3000000, %ecx\n"
	"2:	dec %ecx\n"
	"	jnz 2b\n"
	"	mov $0x42, %al\n"
	"	out %al, $0x80\n"
	"9:	hlt\n"
	"kvm_try_int3:\n"
	"	inc %r14d\n"
	"	iretq\n"
	"kvm_try_end:\n"
	".popsection\n");

static const char *const stages[] = {"its first instruction", "CMPXCHG16B",
				     "XSAVE or XRSTOR",       "INT3",
				     "a timed loop",          "its end"};

/* In the child: says why and ends. */
__attribute__((noreturn, format(printf, 2, 3))) static void give_up(int out, const char *fmt, ...)
{
	char text[KVM_REASON_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)!write(out, text, strlen(text));
	_exit(1);
}

static void must(int out, int rc, const char *what)
{
	if (rc < 0)
		give_up(out, "%s failed: %s", what, strerror(errno));
}

static void put64(uint8_t *ram, uint64_t at, uint64_t value)
{
	memcpy(ram + at, &value, sizeof(value));
}

static void lay_out(uint8_t *ram)
{
	uint64_t handler = CODE + (uint64_t)(kvm_try_int3 - kvm_try_code);

	put64(ram, PML4, PDPT | PAGE_TABLE);
	put64(ram, PDPT, PD | PAGE_TABLE);
	put64(ram, PD, PAGE_2M);
	put64(ram, GDT + 8, 0x00AF9B000000FFFF);  /* 64-bit code */
	put64(ram, GDT + 16, 0x00CF93000000FFFF); /* flat data */
	/* An interrupt gate, present; the handler lies below 64 KiB. */
	put64(ram, IDT + VECTOR_INT3 * 16, handler | CODE_SELECTOR << 16 | UINT64_C(0x8E00) << 32);
	memcpy(ram + CODE, kvm_try_code, (size_t)(kvm_try_end - kvm_try_code));
}

static void set_cpuid(int out, int kvm, int vcpu)
{
	union {
		struct kvm_cpuid2 list;
		uint8_t room[sizeof(struct kvm_cpuid2) +
			     CPUID_MAX * sizeof(struct kvm_cpuid_entry2)];
	} id = {.list.nent = CPUID_MAX};

	must(out, ioctl(kvm, KVM_GET_SUPPORTED_CPUID, &id), "KVM_GET_SUPPORTED_CPUID");
	must(out, ioctl(vcpu, KVM_SET_CPUID2, &id), "KVM_SET_CPUID2");
}

static void set_registers(int out, int vcpu)
{
	unsigned a, b, c = 0, d;
	struct kvm_sregs s;
	struct kvm_segment code = {.selector = CODE_SELECTOR,
				   .type = 0xB,
				   .present = 1,
				   .s = 1,
				   .l = 1,
				   .g = 1,
				   .limit = 0xFFFFFFFF};
	struct kvm_segment data = {.selector = 16,
				   .type = 3,
				   .present = 1,
				   .s = 1,
				   .db = 1,
				   .g = 1,
				   .limit = 0xFFFFFFFF};

	must(out, ioctl(vcpu, KVM_GET_SREGS, &s), "KVM_GET_SREGS");
	s.cs = code;
	s.ds = s.es = s.ss = s.fs = s.gs = data;
	s.tr = (struct kvm_segment){.type = 0xB, .present = 1, .limit = 0x67};
	s.gdt = (struct kvm_dtable){.base = GDT, .limit = 23};
	s.idt = (struct kvm_dtable){.base = IDT, .limit = 4095};
	s.cr0 = CR0_PE_ET_PG;
	s.cr3 = PML4;
	s.cr4 = CR4_PAE;
	s.efer = EFER_LME_LMA;
	must(out, ioctl(vcpu, KVM_SET_SREGS, &s), "KVM_SET_SREGS");

	__get_cpuid(1, &a, &b, &c, &d);
	const struct kvm_regs r = {
		.rip = CODE, .rsp = STACK_TOP, .rflags = 2, .r13 = c & bit_XSAVE ? 1 : 0};
	must(out, ioctl(vcpu, KVM_SET_REGS, &r), "KVM_SET_REGS");
}

/* Runs the guest to its next word, which has to be byte. */
static void run_to(int out, int vcpu, const struct kvm_run *run, uint8_t byte)
{
	struct kvm_regs r = {0};

	must(out, ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
	if (run->exit_reason == KVM_EXIT_IO && run->io.port == WORD_PORT &&
	    ((const uint8_t *)run)[run->io.data_offset] == byte)
		return;
	ioctl(vcpu, KVM_GET_REGS, &r);
	const char *where = stages[r.r15 < sizeof(stages) / sizeof(stages[0]) ? r.r15 : 0];
	if (run->exit_reason == KVM_EXIT_INTERNAL_ERROR)
		give_up(out, "it emulates kernel code: %s ended in an internal error", where);
	if (run->exit_reason == KVM_EXIT_HLT)
		give_up(out, "%s gave a wrong result", where);
	give_up(out, "%s ended with KVM exit reason %u", where, run->exit_reason);
}

static uint64_t cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t native_loop_us(void)
{
	uint64_t start = cpu_us();
	uint32_t n = LOOPS;

	__asm__ volatile("1: dec %0\n jnz 1b" : "+r"(n));
	return cpu_us() - start;
}

static void run_all(int out, int vcpu, const struct kvm_run *run)
{
	uint64_t start, guest_us, native_us;

	run_to(out, vcpu, run, FEATURES_BYTE);
	native_us = native_loop_us();
	start = cpu_us();
	run_to(out, vcpu, run, LOOP_BYTE);
	guest_us = cpu_us() - start;
	if (guest_us > native_us * SLOW_FACTOR + SLOW_SLACK_US)
		give_up(out, "it emulates kernel code: a loop took %llu us, %llu us outside of it",
			(unsigned long long)guest_us, (unsigned long long)native_us);
}

static void run_guest(int out, int kvm)
{
	int vm, vcpu, run_size;
	uint8_t *ram;
	struct kvm_run *run;

	if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
		give_up(out, "it speaks another version of KVM's interface");
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	must(out, vm, "KVM_CREATE_VM");
	ioctl(vm, KVM_SET_TSS_ADDR, 0xFFFBD000UL); /* old Intel processors need it */
	ram = mmap(NULL, GUEST_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(out, ram == MAP_FAILED ? -1 : 0, "mmap");
	lay_out(ram);
	struct kvm_userspace_memory_region slot = {.memory_size = GUEST_SIZE,
						   .userspace_addr = (uint64_t)(uintptr_t)ram};
	must(out, ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot), "KVM_SET_USER_MEMORY_REGION");
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	must(out, vcpu, "KVM_CREATE_VCPU");
	run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	must(out, run_size, "KVM_GET_VCPU_MMAP_SIZE");
	run = mmap(NULL, (size_t)run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	must(out, run == MAP_FAILED ? -1 : 0, "mmap of the vCPU");
	set_cpuid(out, kvm, vcpu);
	set_registers(out, vcpu);
	run_all(out, vcpu, run);
}

/* Collects what the child says until it ends or its time is up. True: it ended well. */
static bool await(pid_t child, int in, char reason[static KVM_REASON_SIZE])
{
	struct pollfd p = {.fd = in, .events = POLLIN};
	ssize_t n = -1;
	int status = 0;
	bool late = poll(&p, 1, DEADLINE_MS) <= 0;

	if (!late)
		n = read(in, reason, KVM_REASON_SIZE - 1);
	kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	reason[n > 0 ? n : 0] = '\0';
	if (late)
		snprintf(reason, KVM_REASON_SIZE, "a tiny guest did not end within %d ms",
			 DEADLINE_MS);
	else if (n <= 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		snprintf(reason, KVM_REASON_SIZE, "the process with a tiny guest died");
	return reason[0] == '\0';
}

bool kvm_try(bool *ret_present, char reason[static KVM_REASON_SIZE])
{
	auto_fd int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int ends[2];
	pid_t child;

	*ret_present = kvm >= 0;
	if (kvm < 0) {
		snprintf(reason, KVM_REASON_SIZE, "/dev/kvm: %s", strerror(errno));
		return false;
	}
	if (pipe2(ends, O_CLOEXEC) < 0) {
		snprintf(reason, KVM_REASON_SIZE, "pipe: %s", strerror(errno));
		return false;
	}
	auto_fd int in = ends[0], out = ends[1];
	child = fork();
	if (child == 0) {
		run_guest(out, kvm);
		_exit(0);
	}
	close(take_fd(out));
	if (child < 0) {
		snprintf(reason, KVM_REASON_SIZE, "fork: %s", strerror(errno));
		return false;
	}
	return await(child, in, reason);
}
