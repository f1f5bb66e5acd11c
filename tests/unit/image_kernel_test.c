/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in each packing are found, and no damage to a file does more than an error. */
#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "image/kernel.h"
#include "image/unpack.h"

#define SMALL (1u << 20)

struct bytes {
	uint8_t p[SMALL];
	size_t n;
};

/* An ELF image of one loadable segment and one note. */
static void make_elf(struct bytes *out, uint32_t note_type)
{
	memset(out, 0, sizeof(*out));
	Elf64_Ehdr h = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(h),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 2,
	};
	Elf64_Phdr load = {.p_type = PT_LOAD, .p_offset = 4096, .p_filesz = 4096};
	Elf64_Phdr note = {.p_type = PT_NOTE, .p_offset = 1024, .p_filesz = 56};
	Elf64_Nhdr other = {.n_namesz = 6, .n_descsz = 4, .n_type = 1};
	Elf64_Nhdr entry = {.n_namesz = 4, .n_descsz = 8, .n_type = note_type};
	memcpy(out->p, &h, sizeof(h));
	memcpy(out->p + sizeof(h), &load, sizeof(load));
	memcpy(out->p + sizeof(h) + sizeof(load), &note, sizeof(note));
	memcpy(out->p + 1024, &other, sizeof(other));
	memcpy(out->p + 1036, "Linux", 6);
	memcpy(out->p + 1048, &entry, sizeof(entry));
	memcpy(out->p + 1060, "Xen", 4);
	for (size_t i = 4096; i < 8192; i++)
		out->p[i] = (uint8_t)(i * 7 + i / 256);
	out->n = 8192;
}

static void pack(const struct bytes *in, int (*filter)(struct archive *), struct bytes *out)
{
	struct archive *a = archive_write_new();
	struct archive_entry *entry = archive_entry_new();
	archive_write_set_format_raw(a);
	assert_int_equal(filter(a), ARCHIVE_OK);
	archive_write_set_bytes_in_last_block(a, 1);
	assert_int_equal(archive_write_open_memory(a, out->p, sizeof(out->p), &out->n), ARCHIVE_OK);
	archive_entry_set_filetype(entry, AE_IFREG);
	assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
	assert_int_equal(archive_write_data(a, in->p, in->n), in->n);
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	archive_entry_free(entry);
	archive_write_free(a);
}

static void put_le32(uint8_t *p, size_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* A legacy lz4 frame whose one block is all literals. */
static void pack_lz4_legacy(const struct bytes *in, struct bytes *out)
{
	size_t n = 0;
	put_le32(out->p, 0x184c2102);
	uint8_t *block = out->p + 8;
	block[n++] = 0xf0;
	size_t rest = in->n - 15;
	for (; rest >= 255; rest -= 255)
		block[n++] = 255;
	block[n++] = (uint8_t)rest;
	memcpy(block + n, in->p, in->n);
	n += in->n;
	put_le32(out->p + 4, n);
	out->n = n + 8;
}

/* Puts a payload into a bzImage of three setup sectors. */
static void wrap(const struct bytes *payload, bool size_trailer, struct bytes *out)
{
	size_t start = 4 * 512 + 612;
	memset(out, 0, sizeof(*out));
	out->p[0x1f1] = 3;
	memcpy(out->p + 0x202, "HdrS", 4);
	out->p[0x206] = 0x0f;
	out->p[0x207] = 0x02;
	put_le32(out->p + 0x248, 612);
	put_le32(out->p + 0x24c, payload->n + (size_trailer ? 4 : 0));
	memcpy(out->p + start, payload->p, payload->n);
	out->n = start + payload->n;
	if (size_trailer) {
		put_le32(out->p + out->n, 8192);
		out->n += 4;
	}
	out->n += 64;
}

static int extract(const struct bytes *file, size_t n, struct buf *elf, struct err *e)
{
	/* A copy of its exact size, so that a sanitizer sees every byte read past it. */
	uint8_t *exact = malloc(n ? n : 1);
	assert_non_null(exact);
	memcpy(exact, file->p, n);
	int r = kernel_extract(exact, n, elf, e);
	free(exact);
	return r;
}

static void refuses(const struct bytes *file, size_t n, int code, const char *text)
{
	auto_buf struct buf elf;
	struct err e = {0};
	buf_init(&elf, SMALL);
	assert_int_equal(extract(file, n, &elf, &e), -code);
	if (!strstr(e.text, text))
		fail_msg("'%s' does not say '%s'", e.text, text);
}

struct kernels {
	struct bytes elf;
	struct bytes packed;
	struct bytes file;
};

static int setup(void **state)
{
	struct kernels *k = calloc(1, sizeof(*k));
	if (!k)
		return -1;
	make_elf(&k->elf, 18);
	*state = k;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void extracts(const struct kernels *k)
{
	auto_buf struct buf elf;
	struct err e = {0};
	buf_init(&elf, SMALL);
	assert_int_equal(extract(&k->file, k->file.n, &elf, &e), 0);
	assert_int_equal(elf.len, k->elf.n);
	assert_memory_equal(elf.data, k->elf.p, k->elf.n);
}

static void kernel_unpacks_every_packing(void **state)
{
	struct kernels *k = *state;
	static int (*const filters[])(struct archive *) = {archive_write_add_filter_xz,
							   archive_write_add_filter_zstd,
							   archive_write_add_filter_lz4};
	for (size_t i = 0; i < 3; i++) {
		pack(&k->elf, filters[i], &k->packed);
		wrap(&k->packed, true, &k->file);
		extracts(k);
	}
	pack(&k->elf, archive_write_add_filter_gzip, &k->packed);
	wrap(&k->packed, false, &k->file);
	extracts(k);
	pack_lz4_legacy(&k->elf, &k->packed);
	wrap(&k->packed, true, &k->file);
	extracts(k);
}

static void kernel_reads_no_setup_sectors_as_four(void **state)
{
	struct kernels *k = *state;
	pack_lz4_legacy(&k->elf, &k->packed);
	wrap(&k->packed, true, &k->file);
	k->file.p[0x1f1] = 0;
	put_le32(k->file.p + 0x248, 100);
	extracts(k);
}

static void kernel_takes_an_elf_image_as_it_is(void **state)
{
	struct kernels *k = *state;
	k->file = k->elf;
	extracts(k);
}

static void kernel_refuses_what_is_neither(void **state)
{
	struct kernels *k = *state;
	memset(&k->file, 'x', sizeof(k->file));
	refuses(&k->file, 0, EINVAL, "neither a bzImage nor an ELF image");
	refuses(&k->file, 4096, EINVAL, "neither a bzImage nor an ELF image");
	pack_lz4_legacy(&k->elf, &k->packed);
	wrap(&k->packed, true, &k->file);
	refuses(&k->file, 0x24f, EINVAL, "neither a bzImage nor an ELF image");
	k->file.p[0x206] = 7;
	refuses(&k->file, k->file.n, EINVAL, "boot protocol 2.07");
}

static void kernel_refuses_a_payload_past_the_end(void **state)
{
	struct kernels *k = *state;
	pack_lz4_legacy(&k->elf, &k->packed);
	wrap(&k->packed, true, &k->file);
	refuses(&k->file, k->file.n - 65, EINVAL, "past its end");
	put_le32(k->file.p + 0x24c, 0xffffffff);
	refuses(&k->file, k->file.n, EINVAL, "past its end");
	put_le32(k->file.p + 0x24c, 3);
	refuses(&k->file, k->file.n, EINVAL, "past its end");
	put_le32(k->file.p + 0x24c, 16);
	put_le32(k->file.p + 0x248, 0xffffffff);
	refuses(&k->file, k->file.n, EINVAL, "past its end");
	k->file.p[0x1f1] = 255;
	put_le32(k->file.p + 0x248, 0);
	refuses(&k->file, k->file.n, EINVAL, "past its end");
}

static void kernel_refuses_damaged_streams(void **state)
{
	struct kernels *k = *state;
	memset(&k->packed, 0, sizeof(k->packed));
	k->packed.n = 100;
	wrap(&k->packed, true, &k->file);
	refuses(&k->file, k->file.n, EINVAL, "compressed in an unknown way");

	pack(&k->elf, archive_write_add_filter_xz, &k->packed);
	memset(k->packed.p + k->packed.n / 2, 0xff, 8);
	wrap(&k->packed, true, &k->file);
	refuses(&k->file, k->file.n, EINVAL, "damaged");

	pack(&k->elf, archive_write_add_filter_zstd, &k->packed);
	k->packed.n /= 2;
	wrap(&k->packed, true, &k->file);
	refuses(&k->file, k->file.n, EINVAL, "");
}

static void kernel_stops_at_the_bound(void **state)
{
	struct kernels *k = *state;
	memset(k->elf.p, 0, sizeof(k->elf.p));
	k->elf.n = sizeof(k->elf.p);
	pack(&k->elf, archive_write_add_filter_gzip, &k->packed);
	wrap(&k->packed, false, &k->file);
	auto_buf struct buf elf;
	struct err e = {0};
	buf_init(&elf, 100000);
	assert_int_equal(extract(&k->file, k->file.n, &elf, &e), -EMSGSIZE);
	assert_true(elf.len <= 100000);
}

static void kernel_wants_a_pvh_entry(void **state)
{
	struct kernels *k = *state;
	make_elf(&k->elf, 17);
	refuses(&k->elf, k->elf.n, EINVAL, "no PVH entry");
	make_elf(&k->elf, 18);
	put_le32(k->elf.p + 1048, 0xfffffffe); /* n_namesz */
	refuses(&k->elf, k->elf.n, EINVAL, "no PVH entry");
	make_elf(&k->elf, 18);
	put_le32(k->elf.p + 1024 + 4, 0xffffffff); /* n_descsz of the note before */
	refuses(&k->elf, k->elf.n, EINVAL, "no PVH entry");
}

static void kernel_refuses_damaged_elf_images(void **state)
{
	struct kernels *k = *state;
	refuses(&k->elf, 40, EINVAL, "not an ELF image");
	refuses(&k->elf, 100, EINVAL, "program headers");
	refuses(&k->elf, 5000, EINVAL, "a segment past its end");
	k->elf.p[EI_CLASS] = ELFCLASS32;
	refuses(&k->elf, k->elf.n, EINVAL, "not a kernel for x86-64");
	make_elf(&k->elf, 18);
	memset(k->elf.p + offsetof(Elf64_Ehdr, e_phoff), 0xff, 8);
	refuses(&k->elf, k->elf.n, EINVAL, "program headers");
	make_elf(&k->elf, 18);
	memset(k->elf.p + offsetof(Elf64_Ehdr, e_phnum), 0xff, 2);
	refuses(&k->elf, k->elf.n, EINVAL, "program headers");
	make_elf(&k->elf, 18);
	memset(k->elf.p + sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_filesz), 0xff, 8);
	refuses(&k->elf, k->elf.n, EINVAL, "a segment past its end");
}

static void kernel_cut_anywhere_is_an_error(void **state)
{
	struct kernels *k = *state;
	pack(&k->elf, archive_write_add_filter_xz, &k->packed);
	wrap(&k->packed, true, &k->file);
	for (size_t n = 0; n < k->file.n - 64; n += 97)
		refuses(&k->file, n, EINVAL, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(kernel_unpacks_every_packing, setup, teardown),
		cmocka_unit_test_setup_teardown(kernel_reads_no_setup_sectors_as_four, setup,
						teardown),
		cmocka_unit_test_setup_teardown(kernel_takes_an_elf_image_as_it_is, setup,
						teardown),
		cmocka_unit_test_setup_teardown(kernel_refuses_what_is_neither, setup, teardown),
		cmocka_unit_test_setup_teardown(kernel_refuses_a_payload_past_the_end, setup,
						teardown),
		cmocka_unit_test_setup_teardown(kernel_refuses_damaged_streams, setup, teardown),
		cmocka_unit_test_setup_teardown(kernel_stops_at_the_bound, setup, teardown),
		cmocka_unit_test_setup_teardown(kernel_wants_a_pvh_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(kernel_refuses_damaged_elf_images, setup, teardown),
		cmocka_unit_test_setup_teardown(kernel_cut_anywhere_is_an_error, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
