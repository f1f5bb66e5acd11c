/* SPDX-License-Identifier: Apache-2.0 */
/* A file of the guest that is written by an upload, as a user. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/user.h"
#include "base/err.h"

#define FILE_MODE_KEEP ((mode_t)-1)

struct file_sink {
	int fd; /* -1: none */
	char *path;
	bool made; /* it was not there before */
};

/*
 * Creates or truncates the file, and makes missing parents (0755). mode: the bits it gets, or
 * FILE_MODE_KEEP. 0; -EISDIR (also what is neither file nor missing), -EACCES, -ENOSPC, other
 * -errno, with e set.
 */
int file_sink_open(struct file_sink *s, const struct user *u, const char *path, mode_t mode,
		   struct err *e);

/* 0 or -errno with e set. */
int file_sink_write(struct file_sink *s, const void *p, size_t n, struct err *e);

/* Closes it; keep false: removes it if it was made by this upload. */
void file_sink_close(struct file_sink *s, const struct user *u, bool keep);
