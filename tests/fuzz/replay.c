/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of its corpus directory, so that past findings are ordinary
 * tests. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
		return 2;
	}
	DIR *d = opendir(argv[1]);
	if (!d) {
		perror(argv[1]);
		return 1;
	}
	unsigned count = 0;
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		auto_free char *path = str_printf("%s/%s", argv[1], e->d_name);
		auto_free char *data = NULL;
		size_t len;
		if (!path || file_read(path, 16u << 20, &data, &len) < 0) {
			perror(e->d_name);
			return 1;
		}
		/* A block of the exact size, so that AddressSanitizer sees a read past the end. */
		auto_free uint8_t *exact = malloc(len);
		if (!exact && len) {
			perror(e->d_name);
			return 1;
		}
		if (len)
			memcpy(exact, data, len);
		LLVMFuzzerTestOneInput(exact, len);
		count++;
	}
	closedir(d);
	printf("%u inputs\n", count);
	return count ? 0 : 1;
}
