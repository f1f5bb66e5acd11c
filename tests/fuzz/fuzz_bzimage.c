/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a kernel: an ELF image that can be booted, or an error. */
#include <stdlib.h>
#include <string.h>

#include "image/kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf struct buf elf;
	struct err e = {0};
	buf_init(&elf, 4u << 20);
	int r = kernel_extract(data, size, &elf, &e);
	if (r == 0 && (elf.len < 64 || memcmp(elf.data,
					      "\x7f"
					      "ELF",
					      4) != 0))
		abort();
	if (r < 0 && (e.code != -r || !e.text[0]))
		abort();
	return 0;
}
