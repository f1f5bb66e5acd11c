/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Besides what every program with threads does: disks and memory by descriptors, sockets that it
 * was given (none of its own), its tap. Emulated code is written and executed at the same address,
 * so protections of memory are not looked at. QEMU puts a filter of its own on top of this one.
 */
#include "vmm/qemu_calls.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <linux/if_tun.h>
#include <linux/ioctl.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>

#define KVM_IOCTLS UINT64_C(0xff00)

static const struct calls_rule rules[] = {
	/* disks, memory, frozen machines */
	CALL(preadv),
	CALL(pwritev),
	CALL(preadv2),
	CALL(pwritev2),
	CALL(fallocate),
	CALL(ftruncate),
	CALL(fdatasync),
	CALL(fsync),
	CALL(fstatfs),
	CALL(statfs),
	CALL(fadvise64),
	CALL(msync),
	CALL(memfd_create),
	CALL_IF(fcntl, 1, CALLS_INT, 0 /* F_DUPFD */),
	/* its loops; without io_uring, which is a kernel of its own to attack */
	CALL(epoll_create1),
	CALL(epoll_ctl),
	CALL(epoll_wait),
	CALL(epoll_pwait),
	/* its sockets */
	CALL(listen),
	CALL_IF(ioctl, 1, CALLS_INT, TCGETS),
	/* its tap */
	CALL_IF(ioctl, 1, CALLS_INT, TUNGETIFF),
	CALL_IF(ioctl, 1, CALLS_INT, TUNGETFEATURES),
	CALL_IF(ioctl, 1, CALLS_INT, TUNSETOFFLOAD),
	CALL_IF(ioctl, 1, CALLS_INT, TUNSETSNDBUF),
	CALL_IF(ioctl, 1, CALLS_INT, TUNSETVNETHDRSZ),
	CALL_IF(ioctl, 1, CALLS_INT, TUNGETVNETHDRSZ),
	CALL_IF(ioctl, 1, CALLS_INT, TUNSETVNETLE),
	CALL_IF(ioctl, 1, CALLS_INT, TUNSETVNETBE),
	CALL_IF(ioctl, 1, CALLS_INT, TUNSETSTEERINGEBPF), /* none: it can't load a program */
	/* start: signals, libraries' looks at memory, its own filter */
	CALL(signalfd4),
	CALL(get_mempolicy),
	CALL(set_mempolicy),
	CALL(sched_getattr),
	CALL(rt_sigtimedwait),
	CALL_IF(prctl, 0, CALLS_INT, PR_MCE_KILL),
	CALL_IF(prctl, 0, CALLS_INT, PR_SET_NO_NEW_PRIVS),
	CALL_IF(prctl, 0, CALLS_INT, PR_SET_TIMERSLACK),
	CALL_IF_FAILS(seccomp, 0, CALLS_INT, SECCOMP_SET_MODE_STRICT, EINVAL),
	CALL_IF(seccomp, 0, CALLS_INT, SECCOMP_GET_ACTION_AVAIL),
	CALL_IF(seccomp, 0, CALLS_INT, SECCOMP_GET_NOTIF_SIZES),
	/* without asking others to decide about its calls */
	{.call = SYS_seccomp,
	 .where = {{CALLS_INT, SECCOMP_SET_MODE_FILTER, 0},
		   {SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 1}}},
	{.call = SYS_seccomp,
	 .error = EINVAL,
	 .where = {{CALLS_INT, SECCOMP_SET_MODE_FILTER, 0},
		   {SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 1}}},
	/* end: the names of its sockets, which are ours to remove */
	CALL_FAILS(unlink, EROFS),
	CALL_FAILS(kill, EPERM),
};

static const struct calls_rule kvm_rules[] = {
	CALL_IF(ioctl, 1, KVM_IOCTLS, KVMIO << 8),
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct calls_filter compiled[2];

const struct calls_filter *qemu_calls(enum vmm_accel accel, struct err *e)
{
	const struct calls_rule *lists[] = {calls_common, rules, kvm_rules};
	const size_t counts[] = {calls_common_count, sizeof(rules) / sizeof(rules[0]),
				 sizeof(kvm_rules) / sizeof(kvm_rules[0])};
	struct calls_filter *f = &compiled[accel == VMM_KVM];
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!f->code)
		rc = calls_compile(lists, counts, accel == VMM_KVM ? 3 : 2, f, e);
	pthread_mutex_unlock(&lock);
	return rc < 0 ? NULL : f;
}
