/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

static const char *log_program = "space";
static bool log_verbose;

void log_init(const char *program, bool verbose)
{
	log_program = program;
	log_verbose = verbose;
}

__attribute__((format(printf, 2, 0))) static void log_line(const char *level, const char *fmt,
							   va_list ap)
{
	char line[1024];
	int n = snprintf(line, sizeof(line) - 1, "%s: %s", log_program, level);
	int m = vsnprintf(line + n, sizeof(line) - 1 - (size_t)n, fmt, ap);
	if (m < 0)
		return;
	size_t len = strlen(line);
	line[len] = '\n';
	fd_write_all(STDERR_FILENO, line, len + 1);
}

#define LOG_FUNCTION(name, level)         \
	void name(const char *fmt, ...)   \
	{                                 \
		va_list ap;               \
		va_start(ap, fmt);        \
		log_line(level, fmt, ap); \
		va_end(ap);               \
	}

LOG_FUNCTION(log_error, "")
LOG_FUNCTION(log_warn, "warning: ")
LOG_FUNCTION(log_info, "")

void log_debug(const char *fmt, ...)
{
	if (!log_verbose)
		return;
	va_list ap;
	va_start(ap, fmt);
	log_line("debug: ", fmt, ap);
	va_end(ap);
}
