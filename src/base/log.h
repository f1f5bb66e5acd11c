/* SPDX-License-Identifier: Apache-2.0 */
/* One line to standard error per call: "program: text". Secrets never go here. */
#pragma once

#include <stdbool.h>

/* program: the name put before each line, kept by reference. verbose: whether log_debug prints. */
void log_init(const char *program, bool verbose);

void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
