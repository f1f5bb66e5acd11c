/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A monitor's files: its program and libraries, the firmware and option ROMs that a microvm is
 * started with, and two devices. /dev/kvm is not among them, for it comes as a descriptor; so do
 * disks, sockets and the tap. What it opens by name for a moment is in its own directory, which is
 * a mount of its own behind a descriptor.
 */
#include "vmm/qemu_jail.h"

#include <errno.h>
#include <stdlib.h>

#include "vmm/qemu_args.h"
#include "vmm/qemu_calls.h"

#define FIRMWARE "/usr/share/qemu/"

static const struct jail_file files[] = {
	{"/dev/null", JAIL_FILE_DEVICE},    {"/dev/urandom", JAIL_FILE_DEVICE},
	{FIRMWARE "qboot.rom", 0},          {FIRMWARE "pvh.bin", 0},
	{FIRMWARE "linuxboot_dma.bin", 0},  {FIRMWARE "kvmvapic.bin", JAIL_FILE_OPTIONAL},
	{QEMU_PLACE_ROOT, JAIL_FILE_PLACE},
};

int qemu_jail_make(struct qemu_jail *ret, const char *const *argv, enum vmm_accel accel,
		   struct err *e)
{
	const struct jail_program *program = jail_program(QEMU_BINARY, e);
	struct qemu_jail j = {
		.spec =
			{
				.name = "QEMU",
				.argv = argv,
				.stdout_fd = -1,
				.netns_fd = -1,
				.own_pid = true,
				.own_mount = true,
				.outlives_parent = true,
			},
	};

	if (!program)
		return -(e->code ? e->code : EIO);
	j.spec.filter = qemu_calls(accel, e);
	if (!j.spec.filter)
		return -(e->code ? e->code : EIO);
	j.files = jail_program_files(program, files, sizeof(files) / sizeof(files[0]),
				     &j.spec.nfiles);
	if (!j.files)
		return err_set(e, ENOMEM, "no memory");
	j.spec.files = j.files;
	*ret = j;
	return 0;
}

void qemu_jail_done(struct qemu_jail *jail)
{
	free(jail->files);
}
