/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host offers to a monitor. KVM is tried, not believed. The rate of the time stamp
 * counter is measured, because an emulated guest counts with the host's and has nothing better to
 * learn it from; an error in it is the drift of the guest's clock.
 */
#include <cpuid.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "vmm/kvm_try.h"
#include "vmm/qemu_args.h"
#include "vmm/vmm.h"

#define CLOCKSOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

#define TSC_WINDOW_NS    50000000 /* one of two; each end is read to some 50 ns: 1 ppm */
#define TSC_SPREAD_PPM   50       /* between the two windows, else it is no clock */
#define TSC_TRIES        16       /* readings of a moment, of which the tightest counts */
#define CPUID_INVARIANT  (1u << 8)
#define LEAF_POWER       0x80000007
#define VERSION_TEXT_MAX 4096

struct moment {
	int64_t ns;
	uint64_t tsc;
};

static int64_t raw_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct moment moment_now(void)
{
	struct moment best = {0};
	uint64_t tightest = UINT64_MAX;

	for (int i = 0; i < TSC_TRIES; i++) {
		uint64_t before = __rdtsc();
		int64_t ns = raw_ns();
		uint64_t width = __rdtsc() - before;

		if (width < tightest) {
			tightest = width;
			best = (struct moment){ns, before + width / 2};
		}
	}
	return best;
}

static struct moment moment_after(struct moment start, int64_t window_ns)
{
	int64_t left = window_ns - (raw_ns() - start.ns);

	while (left > 0) {
		struct timespec t = {.tv_nsec = left};

		nanosleep(&t, NULL);
		left = window_ns - (raw_ns() - start.ns);
	}
	return moment_now();
}

static double rate_khz(struct moment a, struct moment b)
{
	return (double)(b.tsc - a.tsc) * 1e6 / (double)(b.ns - a.ns);
}

/* The processor says that the rate never changes, or the host's kernel keeps its own time by it. */
static bool tsc_is_steady(void)
{
	static const char *const by_tsc[] = {"tsc\n", "kvm-clock\n",
					     "hyperv_clocksource_tsc_page\n"};
	unsigned a, b, c, d;
	auto_free char *name = NULL;
	size_t len;

	if (__get_cpuid(LEAF_POWER, &a, &b, &c, &d) && (d & CPUID_INVARIANT))
		return true;
	if (file_read(CLOCKSOURCE, 64, &name, &len) < 0)
		return false;
	for (size_t i = 0; i < sizeof(by_tsc) / sizeof(by_tsc[0]); i++)
		if (str_eq(name, by_tsc[i]))
			return true;
	return false;
}

static uint32_t tsc_khz(struct moment start, struct moment middle, struct moment end)
{
	double first = rate_khz(start, middle), second = rate_khz(middle, end);
	double spread = (first > second ? first - second : second - first) / first * 1e6;

	if (!tsc_is_steady() || !(spread < TSC_SPREAD_PPM))
		return 0;
	return (uint32_t)(rate_khz(start, end) + 0.5);
}

static void qemu_version(char *out, size_t size)
{
	static const char lead[] = "version ";
	const char *const argv[] = {QEMU_BINARY, "--version", NULL};
	auto_free char *text = NULL;
	struct err e;
	const char *v;

	if (access(QEMU_BINARY, X_OK) < 0 || proc_output(argv, VERSION_TEXT_MAX, &text, &e) < 0)
		return;
	v = strstr(text, lead);
	if (v)
		snprintf(out, size, "%.*s", (int)strspn(v + strlen(lead), "0123456789."),
			 v + strlen(lead));
}

void vmm_probe(struct vmm_probe *ret)
{
	struct vmm_probe p = {0};
	struct moment start = moment_now(), middle, end;

	p.kvm_usable = kvm_try(&p.kvm_present, p.kvm_reason);
	p.accel = p.kvm_usable ? VMM_KVM : VMM_TCG;
	middle = moment_after(start, TSC_WINDOW_NS);
	qemu_version(p.qemu_version, sizeof(p.qemu_version));
	end = moment_after(middle, TSC_WINDOW_NS);
	p.tsc_khz = tsc_khz(start, middle, end);
	*ret = p;
}
