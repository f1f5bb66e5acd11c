/* SPDX-License-Identifier: Apache-2.0 */
#include "vault/value.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

void *pages_new(size_t n, const char *name)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, n, MADV_DONTDUMP) < 0 || madvise(p, n, MADV_WIPEONFORK) < 0) {
		munmap(p, n);
		return NULL;
	}
	if (mlock(p, n) < 0 && name)
		log_warn(
			"secret %s is not locked in memory (%s): raise RLIMIT_MEMLOCK or turn swap off",
			name, strerrordesc_np(errno));
	return p;
}

void pages_free(void *p, size_t n)
{
	if (!p)
		return;
	explicit_bzero(p, n);
	munmap(p, n);
}

int value_set(struct value *v, const char *text, size_t len, const char *name, struct err *e)
{
	char *p = pages_new(len + 1, name);
	if (!p)
		return err_set(e, ENOMEM, "secret %s: no memory that is kept out of dumps", name);
	memcpy(p, text, len);
	value_done(v);
	*v = (struct value){.text = p, .len = len};
	return 0;
}

void value_done(struct value *v)
{
	pages_free(v->text, v->len + 1);
	*v = (struct value){0};
}
