/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that can't be are told here; those that this host can't, by spaced. */
#include "cli/size.h"

#include <errno.h>

#include "base/str.h"

int size_cpus(const char *text, uint64_t *ret, struct err *e)
{
	return str_to_u64(text, 1, 1024, ret) < 0
		       ? err_set(e, EINVAL, "--cpus takes a whole number from 1, not '%.40s'", text)
		       : 0;
}

int size_memory(const char *text, uint64_t *ret_mib, struct err *e)
{
	if (str_to_mib(text, ret_mib) < 0 || !*ret_mib || *ret_mib > INT32_MAX)
		return err_set(e, EINVAL, "--memory takes a size like 512, 512M or 1G, not '%.40s'",
			       text);
	return 0;
}

int size_bytes(const char *text, uint64_t *ret, struct err *e)
{
	if (str_to_u64(text, 1, INT64_MAX, ret) == 0 || str_to_bytes(text, ret) == 0)
		return 0;
	return err_set(e, EINVAL,
		       "--bytes takes a size like 1000000, 64kB, 5MB or 1GB, not '%.40s'", text);
}
