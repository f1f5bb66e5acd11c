/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

int err_set(struct err *e, int code, const char *fmt, ...)
{
	if (e) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(e->text, sizeof(e->text), fmt, ap);
		va_end(ap);
		str_drop_partial(e->text);
		e->code = code;
	}
	return -code;
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
	if (e) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(e->text, sizeof(e->text), fmt, ap);
		va_end(ap);
		e->code = code;
		size_t n = strlen(e->text);
		snprintf(e->text + n, sizeof(e->text) - n, ": %s", strerrordesc_np(code));
		str_drop_partial(e->text);
	}
	return -code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	if (!e || !e->code)
		return -EIO;

	char old[ERR_TEXT_MAX];
	memcpy(old, e->text, sizeof(old));
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	size_t n = strlen(e->text);
	snprintf(e->text + n, sizeof(e->text) - n, ": %s", old);
	str_drop_partial(e->text);
	return -e->code;
}
