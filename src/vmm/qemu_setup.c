/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks, memory and kernel or state of a QEMU that has waited for them. It reads commands byte by
 * byte, at some 3 µs each, which is most of the time that a restore takes: so short names, and
 * nothing in them that is the default.
 *
 * Memory is a file mapped privately whose descriptor is read-only: what the guest writes stays
 * QEMU's own, so that many share one file, and the pages that differ from it can be told.
 */
#include "vmm/qemu_setup.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "vmm/qemu_args.h"

/*
 * The kernel's words. What the machine needs comes first: the image's win where they differ, and
 * what follows " -- " is init's. A stock kernel spends a quarter of its start on checking itself
 * and on keys for module signatures, which protect nothing here: in the sandbox the task may be
 * root. The blacklist names what does that.
 */
#define CMDLINE_MACHINE \
	"console=ttyS0 8250.nr_uarts=1 reboot=t panic=-1 quiet pci=off random.trust_cpu=on"
#define CMDLINE_SHORTER                                                                       \
	" mitigations=off cryptomgr.notests initcall_blacklist=load_system_certificate_list," \
	"crypto_kdf108_init,init_encrypted,pci_arch_init"

/* Takes arguments, which are NULL when there was no memory for them. */
static int put(struct qemu_setup *s, const char *name, json_t *arguments)
{
	if (!arguments || s->count == QEMU_SETUP_MAX) {
		json_decref(arguments);
		return -ENOMEM;
	}
	s->commands[s->count].name = name;
	s->commands[s->count].arguments = arguments;
	s->count++;
	return 0;
}

static int put_bare(struct qemu_setup *s, const char *name)
{
	if (s->count == QEMU_SETUP_MAX)
		return -ENOMEM;
	s->commands[s->count].name = name;
	s->commands[s->count].arguments = NULL;
	s->count++;
	return 0;
}

/* A name in QEMU's directory as QEMU reaches it. */
static char *in_dir(const char *name)
{
	return str_printf("/proc/self/fd/%d/%s", QEMU_FD_DIR, name);
}

static int put_set(struct qemu_setup *s, const char *property, json_t *value)
{
	return put(s, "qom-set",
		   json_pack("{s:s, s:s, s:o}", "path", "/machine", "property", property, "value",
			     value));
}

static int put_set_str(struct qemu_setup *s, const char *property, const char *value)
{
	return put_set(s, property, json_string(value));
}

static int put_disks(struct qemu_setup *s, const char *root)
{
	auto_free char *linked = in_dir(QEMU_NAME_ROOT);
	auto_free char *scratch = str_printf("/dev/fdset/%d", QEMU_FD_SCRATCH);
	int rc;

	if (!linked || !scratch)
		return -ENOMEM;
	/* drop-cache: what the host has cached of a disk would be dropped when a state is in. */
	rc = put(s, "blockdev-add",
		 json_pack("{s:s, s:s, s:b, s:s, s:s, s:b}", "driver", "file", "node-name", "root",
			   "read-only", 1, "filename", root ? root : linked, "locking", "off",
			   "drop-cache", 0));
	if (rc < 0)
		return rc;
	/* The disk dies with the sandbox, so a flush has nothing to make durable. */
	return put(s, "blockdev-add",
		   json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:{s:b}}", "driver", "file",
			     "node-name", "scratch", "filename", scratch, "locking", "off",
			     "drop-cache", 0, "discard", "unmap", "cache", "no-flush", 1));
}

static int put_memory(struct qemu_setup *s, const struct vmm_machine *machine)
{
	json_int_t size = (json_int_t)machine->ram_bytes, cpus = (json_int_t)machine->cpus;
	auto_free char *path = in_dir(QEMU_NAME_MEMORY);
	int rc;

	if (!path)
		return -ENOMEM;
	rc = put(s, "object-add",
		 json_pack("{s:s, s:s, s:I, s:s, s:b, s:s}", "qom-type", "memory-backend-file",
			   "id", "m", "size", size, "mem-path", path, "readonly", 1, "rom", "off"));
	if (rc == 0)
		rc = put_set(s, "memory", json_pack("{s:I}", "size", size));
	if (rc == 0)
		rc = put_set(s, "smp", json_pack("{s:I}", "cpus", cpus));
	return rc < 0 ? rc : put_set_str(s, "memory-backend", "/objects/m");
}

static int put_kernel(struct qemu_setup *s, const struct vmm_probe *host,
		      const struct vmm_kernel *kernel)
{
	auto_buf struct buf line;
	auto_free char *text = NULL, *elf = in_dir(QEMU_NAME_KERNEL),
		       *initramfs = in_dir(QEMU_NAME_INITRAMFS);
	int rc;

	buf_init(&line, QEMU_CMDLINE_MAX);
	rc = buf_append_str(&line, CMDLINE_MACHINE CMDLINE_SHORTER);
	if (rc == 0 && host->accel == VMM_TCG)
		rc = buf_printf(&line, " tsc_early_khz=%u tsc=reliable no_timer_check",
				host->tsc_khz);
	if (rc == 0 && kernel->cmdline && kernel->cmdline[0])
		rc = buf_printf(&line, " %s", kernel->cmdline);
	if (rc < 0)
		return rc;
	text = str_printf("%.*s", (int)line.len, (const char *)line.data);
	if (!text || !elf || !initramfs)
		return -ENOMEM;
	rc = put_set_str(s, "kernel", elf);
	if (rc == 0)
		rc = put_set_str(s, "initrd", initramfs);
	return rc < 0 ? rc : put_set_str(s, "append", text);
}

static int put_state(struct qemu_setup *s, bool run)
{
	auto_free char *state = in_dir(QEMU_NAME_STATE);
	auto_free char *uri = state ? str_printf("file:%s", state) : NULL;
	int rc = 0;

	if (!uri)
		return -ENOMEM;
	/* What runs says so by itself; of what does not, an event has to tell that it is there. To
	 * stop what is yet to come means: not to start when it is in. */
	if (!run)
		rc = put_bare(s, "stop");
	if (rc == 0 && !run)
		rc = put(s, "migrate-set-capabilities",
			 json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "events",
				   "state", 1));
	return rc < 0 ? rc : put(s, "migrate-incoming", json_pack("{s:s}", "uri", uri));
}

static int put_machine(struct qemu_setup *s, const struct vmm_machine *machine, const char *root)
{
	int rc = put_disks(s, root);

	return rc < 0 ? rc : put_memory(s, machine);
}

static int finish(struct qemu_setup *s, int rc, struct qemu_setup *ret, struct err *e)
{
	if (rc == 0) {
		*ret = *s;
		return 0;
	}
	qemu_setup_done(s);
	if (rc == -EMSGSIZE)
		return err_set(e, E2BIG, "kernel command line is longer than %d bytes",
			       QEMU_CMDLINE_MAX);
	return err_sys(e, -rc, "QEMU's commands");
}

int qemu_setup_boot(const struct vmm_probe *host, const struct vmm_machine *machine,
		    const char *root, const struct vmm_kernel *kernel, struct qemu_setup *ret,
		    struct err *e)
{
	struct qemu_setup s = {0};
	int rc = put_machine(&s, machine, root);

	if (rc == 0)
		rc = put_kernel(&s, host, kernel);
	if (rc == 0)
		rc = put_bare(&s, "x-exit-preconfig");
	return finish(&s, rc, ret, e);
}

int qemu_setup_restore(const struct vmm_machine *machine, const char *root, bool run,
		       struct qemu_setup *ret, struct err *e)
{
	struct qemu_setup s = {0};
	int rc = put_machine(&s, machine, root);

	if (rc == 0)
		rc = put_bare(&s, "x-exit-preconfig");
	if (rc == 0)
		rc = put_state(&s, run);
	return finish(&s, rc, ret, e);
}

void qemu_setup_done(struct qemu_setup *s)
{
	for (size_t i = 0; i < s->count; i++)
		json_decref(s->commands[i].arguments);
	memset(s, 0, sizeof(*s));
}
