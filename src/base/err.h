/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors that a person will read: an errno value and a short text, no heap.
 * Set where it happens, prefixed on the way up, logged once, where it stops.
 * The text never holds a secret and says what to do.
 */
#pragma once

#define ERR_TEXT_MAX 512 /* bytes, with the NUL; longer texts are cut at the end */

struct err {
	int code; /* errno value, > 0; 0 while nothing has gone wrong */
	char text[ERR_TEXT_MAX];
};

/* Sets e (which may be NULL) and returns -code, so that `return err_set(e, EINVAL, …)` works. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, and appends ": " and the text of errno value code. */
int err_sys(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the text; returns -e->code (-EIO when e is NULL or was never set). */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
