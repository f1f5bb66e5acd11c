/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a frozen machine depends on, as text that is compared and nothing else. The monitor's whole
 * command line is in it, so that no change of a device or flag is forgotten here.
 */
#include <cpuid.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "vmm/qemu_args.h"
#include "vmm/vmm.h"

#define TEXT_MAX 8192

/* A measured rate differs by some kHz from one time to the next; what the guest was told once it
 * keeps, which is right on each host whose clock is the same but for the usual inaccuracy. */
#define CLOCK_PARTS 500 /* a difference of one of so many parts is the measurement's */

#define LEAF_BRAND    0x80000002u
#define LEAF_EXTENDED 0x80000001u

static int put_leaf(struct buf *out, unsigned leaf, bool with_ebx)
{
	unsigned a = 0, b = 0, c = 0, d = 0;

	__get_cpuid_count(leaf, 0, &a, &b, &c, &d);
	/* Of leaf 1 ebx says on which processor this ran. */
	return buf_printf(out, " %x:%x,%x,%x,%x", leaf, a, with_ebx ? b : 0, c, d);
}

static int put_processor(struct buf *out)
{
	unsigned brand[13] = {0};
	int rc;

	for (unsigned i = 0; i < 3; i++) {
		unsigned *r = brand + i * 4;

		__get_cpuid(LEAF_BRAND + i, &r[0], &r[1], &r[2], &r[3]);
	}
	rc = buf_printf(out, "processor %s", (const char *)brand);
	if (rc == 0)
		rc = put_leaf(out, 1, false);
	if (rc == 0)
		rc = put_leaf(out, 7, true);
	if (rc == 0)
		rc = put_leaf(out, LEAF_EXTENDED, true);
	return rc < 0 ? rc : buf_append_str(out, "\n");
}

static int put_monitor(struct buf *out, const struct vmm_probe *host)
{
	const struct vmm_config any = {.id = "any", .dir = "/", .uid = 1};
	struct qemu_args args;
	int rc = buf_printf(out, "qemu %s:", host->qemu_version);

	if (rc < 0)
		return rc;
	rc = qemu_args_build(host, &any, &args, NULL);
	if (rc < 0)
		return buf_append_str(out, " unusable\n");
	for (size_t i = 1; rc == 0 && i < args.count; i++)
		rc = buf_printf(out, " %s", args.argv[i]);
	qemu_args_done(&args);
	return rc < 0 ? rc : buf_append_str(out, "\n");
}

#define CLOCK_LINE "clock "

char *vmm_fingerprint(const struct vmm_probe *host)
{
	auto_buf struct buf out;
	int rc;

	buf_init(&out, TEXT_MAX);
	rc = put_monitor(&out, host);
	if (rc == 0)
		rc = put_processor(&out);
	if (rc == 0)
		rc = buf_printf(&out, CLOCK_LINE "%u kHz\n", host->tsc_khz);
	return rc < 0 ? NULL : buf_take_str(&out);
}

/* The last line's number; *ret_len is what is before that line. */
static int clock_of(const char *text, size_t *ret_len, uint64_t *ret_khz)
{
	const char *line = NULL;
	unsigned long long khz;

	for (const char *p = text; (p = strstr(p, "\n" CLOCK_LINE)); p++)
		line = p + 1;
	if (!line || sscanf(line, CLOCK_LINE "%llu kHz", &khz) != 1)
		return -EINVAL;
	*ret_len = (size_t)(line - text);
	*ret_khz = khz;
	return 0;
}

bool vmm_fingerprint_fits(const char *frozen, const char *here)
{
	size_t a_len, b_len;
	uint64_t a, b;

	if (!frozen || clock_of(frozen, &a_len, &a) < 0 || clock_of(here, &b_len, &b) < 0)
		return false;
	if (a_len != b_len || memcmp(frozen, here, a_len) != 0)
		return false;
	return (a > b ? a - b : b - a) <= b / CLOCK_PARTS;
}
