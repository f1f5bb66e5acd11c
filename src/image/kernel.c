/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bzImage is: a boot sector with the setup header, setup code, then the protected-mode part, in
 * which the header places a compressed ELF image (the payload). All but gzip carry a 32-bit length
 * of the unpacked bytes behind the stream; after the ELF image may come relocations. Every offset
 * here comes from the file and is checked before it is used.
 */
#include "image/kernel.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "image/unpack.h"

#define SETUP_SECTORS    0x1f1
#define SETUP_MAGIC      0x202 /* "HdrS" */
#define SETUP_VERSION    0x206
#define PAYLOAD_OFFSET   0x248 /* from the protected-mode part; since version 2.08 */
#define PAYLOAD_LENGTH   0x24c
#define SETUP_HEADER_END 0x250

#define PHDR_COUNT_MAX 256
#define NOTE_PVH_ENTRY 18 /* XEN_ELFNOTE_PHYS32_ENTRY */

static uint32_t le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool is_elf(const uint8_t *p, size_t n)
{
	return n >= SELFMAG && memcmp(p, ELFMAG, SELFMAG) == 0;
}

static int find_payload(const uint8_t *file, size_t n, const uint8_t **ret, size_t *ret_len,
			struct err *e)
{
	if (n < SETUP_HEADER_END || memcmp(file + SETUP_MAGIC, "HdrS", 4) != 0)
		return err_set(e, EINVAL, "neither a bzImage nor an ELF image");
	unsigned version = file[SETUP_VERSION] | (unsigned)file[SETUP_VERSION + 1] << 8;
	if (version < 0x208)
		return err_set(e, EINVAL, "a bzImage of boot protocol %u.%02u, older than 2.08",
			       version >> 8, version & 0xff);
	size_t sectors = file[SETUP_SECTORS] ? file[SETUP_SECTORS] : 4;
	uint64_t start = (sectors + 1) * 512 + (uint64_t)le32(file + PAYLOAD_OFFSET);
	uint64_t len = le32(file + PAYLOAD_LENGTH);
	if (start > n || len > n - start || len < 4)
		return err_set(e, EINVAL, "a cut bzImage: its payload lies past its end");
	*ret = file + start;
	*ret_len = (size_t)len;
	return 0;
}

/* Whether notes[0 .. n) hold Xen's entry point note. */
static bool notes_have_pvh(const uint8_t *notes, size_t n)
{
	while (n >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr note;
		memcpy(&note, notes, sizeof(note));
		uint64_t name_len = ((uint64_t)note.n_namesz + 3) & ~3ull;
		uint64_t desc_len = ((uint64_t)note.n_descsz + 3) & ~3ull;
		uint64_t len = sizeof(note) + name_len + desc_len;
		if (len > n)
			return false;
		if (note.n_type == NOTE_PVH_ENTRY && note.n_namesz == 4 && note.n_descsz >= 4 &&
		    memcmp(notes + sizeof(note), "Xen", 4) == 0)
			return true;
		notes += len;
		n -= len;
	}
	return false;
}

static int check_elf(const uint8_t *p, size_t n, struct err *e)
{
	Elf64_Ehdr h;
	if (n < sizeof(h) || !is_elf(p, n))
		return err_set(e, EINVAL, "the payload is not an ELF image");
	memcpy(&h, p, sizeof(h));
	if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
	    h.e_machine != EM_X86_64)
		return err_set(e, EINVAL, "not a kernel for x86-64");
	if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > PHDR_COUNT_MAX ||
	    h.e_phoff > n || h.e_phnum * sizeof(Elf64_Phdr) > n - h.e_phoff)
		return err_set(e, EINVAL, "damaged ELF image: program headers");
	bool pvh = false;
	for (size_t i = 0; i < h.e_phnum; i++) {
		Elf64_Phdr ph;
		memcpy(&ph, p + h.e_phoff + i * sizeof(ph), sizeof(ph));
		if (ph.p_type != PT_LOAD && ph.p_type != PT_NOTE)
			continue;
		if (ph.p_offset > n || ph.p_filesz > n - ph.p_offset)
			return err_set(e, EINVAL, "damaged ELF image: a segment past its end");
		if (ph.p_type == PT_NOTE)
			pvh |= notes_have_pvh(p + ph.p_offset, ph.p_filesz);
	}
	if (!pvh)
		return err_set(e, EINVAL, "the kernel has no PVH entry (CONFIG_PVH)");
	return 0;
}

int kernel_extract(const void *file, size_t n, struct buf *elf, struct err *e)
{
	int r;
	if (is_elf(file, n)) {
		r = buf_append(elf, file, n);
		if (r < 0)
			return err_sys(e, -r, "the kernel does not fit in memory");
		return check_elf(elf->data, elf->len, e);
	}
	const uint8_t *payload = NULL;
	size_t len = 0;
	r = find_payload(file, n, &payload, &len, e);
	if (r < 0)
		return r;
	bool gzip = payload[0] == 0x1f && payload[1] == 0x8b;
	r = unpack(payload, gzip ? len : len - 4, elf, e);
	return r < 0 ? r : check_elf(elf->data, elf->len, e);
}
