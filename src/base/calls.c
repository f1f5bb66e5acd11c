/* SPDX-License-Identifier: Apache-2.0 */
#include "base/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <seccomp.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define INSTRUCTIONS_MAX 4096 /* the kernel's limit */

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* What makes a namespace: a thread or a process never needs one. */
#define NEW_NAMESPACES                                                                            \
	((uint64_t)(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
		    CLONE_NEWPID | CLONE_NEWNET))

const struct calls_rule calls_common[] = {
	/* memory */
	CALL(brk),
	CALL(mmap),
	CALL(munmap),
	CALL(mremap),
	CALL(mprotect),
	CALL(madvise),
	/* threads; clone3 hides its flags from a filter, so glibc is told to use clone */
	{.call = SYS_clone, .where = {{NEW_NAMESPACES | CLONE_THREAD, CLONE_THREAD, 0}}},
	CALL_FAILS(clone3, ENOSYS),
	CALL(futex),
	CALL(set_robust_list),
	CALL(rseq),
	CALL(set_tid_address),
	CALL(arch_prctl),
	CALL(sched_yield),
	CALL(sched_getaffinity),
	CALL(sysinfo),
	CALL(gettid),
	CALL(getpid),
	CALL(exit),
	CALL(exit_group),
	/* signals: to threads of its own process alone, which is number 1 of its namespace */
	CALL(rt_sigaction),
	CALL(rt_sigprocmask),
	CALL(rt_sigreturn),
	CALL(sigaltstack),
	CALL_IF(tgkill, 0, CALLS_INT, 1),
	CALL(restart_syscall),
	/* time */
	CALL(clock_gettime),
	CALL(clock_getres),
	CALL(clock_nanosleep),
	CALL(nanosleep),
	CALL(gettimeofday),
	CALL(time),
	/* descriptors that it has */
	CALL(read),
	CALL(write),
	CALL(readv),
	CALL(pread64),
	CALL(pwrite64),
	CALL(writev),
	CALL(close),
	CALL(fstat),
	CALL(newfstatat),
	CALL(statx),
	CALL(lseek),
	CALL(dup),
	CALL_IF(fcntl, 1, CALLS_INT, F_GETFD),
	CALL_IF(fcntl, 1, CALLS_INT, F_SETFD),
	CALL_IF(fcntl, 1, CALLS_INT, F_GETFL),
	CALL_IF(fcntl, 1, CALLS_INT, F_SETFL),
	CALL_IF(fcntl, 1, CALLS_INT, F_DUPFD_CLOEXEC),
	CALL(eventfd2),
	CALL(pipe2),
	CALL(poll),
	CALL(ppoll),
	CALL(recvmsg),
	CALL(sendmsg),
	CALL(recvfrom),
	CALL(sendto),
	CALL(accept4),
	CALL(shutdown),
	CALL(getsockopt),
	CALL(setsockopt),
	CALL(getsockname),
	CALL(getpeername),
	/* files of its root directory */
	CALL(openat),
	CALL(access),
	CALL(readlink),
	CALL(readlinkat),
	CALL(getdents64),
	/* itself */
	CALL(getrandom),
	CALL(getuid),
	CALL(geteuid),
	CALL(getgid),
	CALL(getegid),
	CALL(uname),
	CALL(getcwd),
	CALL_IF(prlimit64, 0, CALLS_INT, 0),
	CALL_IF(prctl, 0, CALLS_INT, PR_SET_NAME),
	/* what libraries try, and do without */
	CALL_FAILS(io_uring_setup, ENOSYS),
	/* from the jail to the program */
	CALL_IF(execveat, 4, CALLS_INT, 0),
#ifdef SANITIZED
	/* The sanitizers' allocator, their reports, and the thread that stops all others to look
	   for leaks. No list of a build that is installed. */
	CALL(clone),
	CALL(ptrace),
	CALL(wait4),
	CALL(open),
	CALL(prctl),
	CALL(tgkill),
	CALL(kill),
	CALL(getppid),
	CALL(getrusage),
	CALL(getrlimit),
	CALL(setrlimit),
	CALL(sched_getparam),
	CALL(sched_getscheduler),
	CALL(stat),
	CALL(lstat),
	CALL(getdents),
	CALL(waitid),
	CALL(tkill),
	CALL(pipe),
	CALL(dup2),
	CALL(unlink),
	CALL(ioctl),
	CALL(fsync),
	CALL(process_vm_readv),
#endif
};
const size_t calls_common_count = sizeof(calls_common) / sizeof(calls_common[0]);

static int add_rule(scmp_filter_ctx ctx, const struct calls_rule *r)
{
	struct scmp_arg_cmp where[CALLS_WHERE_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < CALLS_WHERE_MAX; i++)
		if (r->where[i].mask != 0)
			where[n++] = SCMP_CMP64(r->where[i].argument, SCMP_CMP_MASKED_EQ,
						r->where[i].mask, r->where[i].value);
	return seccomp_rule_add_array(
		ctx, r->error ? SCMP_ACT_ERRNO((uint16_t)r->error) : SCMP_ACT_ALLOW, r->call, n,
		where);
}

static int read_back(int fd, struct calls_filter *ret)
{
	struct stat st;
	struct sock_filter *code;

	if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	size_t n = (size_t)st.st_size;
	if (n == 0 || n % sizeof(*code) != 0 || n / sizeof(*code) > INSTRUCTIONS_MAX)
		return -E2BIG;
	code = malloc(n);
	if (!code)
		return -ENOMEM;
	if (fd_read_all(fd, code, n) != (ssize_t)n) {
		free(code);
		return -EIO;
	}
	*ret = (struct calls_filter){code, n / sizeof(*code)};
	return 0;
}

static int export(scmp_filter_ctx ctx, struct calls_filter *ret)
{
	auto_fd int fd = memfd_create("filter", MFD_CLOEXEC);
	int rc = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

	return rc < 0 ? rc : read_back(fd, ret);
}

int calls_compile(const struct calls_rule *const *lists, const size_t *counts, size_t nlists,
		  struct calls_filter *ret, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int rc = ctx ? seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS)
		     : -ENOMEM;

	/* A tree instead of a list: some ten comparisons a call. */
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (size_t i = 0; rc == 0 && i < nlists; i++)
		for (size_t k = 0; rc == 0 && k < counts[i]; k++) {
			rc = add_rule(ctx, &lists[i][k]);
			if (rc == -EEXIST)
				rc = 0;
		}
	if (rc == 0)
		rc = export(ctx, ret);
	if (ctx)
		seccomp_release(ctx);
	return rc < 0 ? err_sys(e, -rc, "filter of system calls") : 0;
}

void calls_done(struct calls_filter *f)
{
	free(f->code);
	memset(f, 0, sizeof(*f));
}

int calls_enforce(const struct calls_filter *f, struct err *e)
{
	const struct sock_fprog program = {(unsigned short)f->count, f->code};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
		return err_sys(e, errno, "filter of system calls");
	return 0;
}

int calls_print(const struct calls_filter *f, FILE *to)
{
	for (size_t i = 0; i < f->count; i++)
		fprintf(to, "%u %u %u %u\n", f->code[i].code, f->code[i].jt, f->code[i].jf,
			f->code[i].k);
	return fflush(to) == 0 ? 0 : -EIO;
}

int calls_parse(const char *text, struct calls_filter *ret)
{
	struct sock_filter *code = calloc(INSTRUCTIONS_MAX, sizeof(*code));
	size_t n = 0;

	if (!code)
		return -ENOMEM;
	for (const char *line = text; line && *line; n++) {
		unsigned op, jt, jf, k;

		if (n == INSTRUCTIONS_MAX || sscanf(line, "%u %u %u %u", &op, &jt, &jf, &k) != 4 ||
		    op > UINT16_MAX || jt > UINT8_MAX || jf > UINT8_MAX) {
			free(code);
			return -EBADMSG;
		}
		code[n] = (struct sock_filter){(uint16_t)op, (uint8_t)jt, (uint8_t)jf, k};
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	if (n == 0) {
		free(code);
		return -EBADMSG;
	}
	*ret = (struct calls_filter){code, n};
	return 0;
}
