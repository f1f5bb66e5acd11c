/* SPDX-License-Identifier: Apache-2.0 */
/* What files of credentials hold: text, AWS's JSON, PEM. Nothing of it may show in an error, and
 * what is taken is what a gateway takes, or is said to be wrong. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/doc.h"
#include "daemon/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const recipes[] = {
	"{\"kind\":\"bearer\"}",
	"{\"kind\":\"sigv4\",\"service\":\"s3\",\"region\":\"r\"}",
	"{\"kind\":\"certificate\"}",
};

static void define(const char *recipe, const char *path, struct definition *d)
{
	struct err e = {0};
	auto_json json_t *j =
		json_pack("{s:[s], s:o, s:{s:s}}", "hosts", "a.example", "inject",
			  doc_parse_json(recipe, strlen(recipe), &e), "source", "file", path);
	if (!j || definition_read("API_TOKEN", j, DEFINITION_IN_STORE, d, &e) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32];
	auto_json json_t *none = json_object();
	int fd = memfd_create("credential", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (size_t i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
		struct definition d;
		struct source_value v = {0};
		struct err e = {0};
		define(recipes[i], path, &d);
		int r = source_read(&d, none, -1, &v, &e);
		assert((r == 0) == (v.value != NULL));
		assert((r < 0) == (e.code != 0));
		if (r == 0)
			definition_check_value(&d, v.value, &e);
		source_value_done(&v);
		definition_done(&d);
	}
	close(fd);
	return 0;
}
