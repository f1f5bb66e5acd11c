/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors, whole files, directories. Every descriptor made here is CLOEXEC. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Writes all n bytes to a blocking descriptor. 0 or -errno. */
int fd_write_all(int fd, const void *p, size_t n);

/* Reads until n bytes or end of file. Returns the count, or -errno. */
ssize_t fd_read_all(int fd, void *p, size_t n);

int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);

/* Sends one message of n > 0 bytes and nfds <= FD_PASS_MAX descriptors over a unix socket, whole or
   not at all. Returns 0 or -errno (-EAGAIN on a full non-blocking socket, -EMSGSIZE when a
   SEQPACKET can't hold it). */
#define FD_PASS_MAX 16
int fd_send(int sock, const void *p, size_t n, const int *fds, size_t nfds);

/* Receives one message; *ret_nfds is in: room in fds, out: descriptors received (the caller's to
   close). Returns the byte count, 0 at end of file, or -errno. -EMSGSIZE (descriptors closed) when
   bytes or descriptors were cut. */
ssize_t fd_recv(int sock, void *p, size_t n, int *fds, size_t *ret_nfds);

/* Reads a whole file of at most max bytes into a heap block with a NUL behind it. 0, -EFBIG,
 * -errno. */
int file_read(const char *path, size_t max, char **ret_data, size_t *ret_len);
int file_read_at(int dirfd, const char *path, size_t max, char **ret_data, size_t *ret_len);

/* Writes path whole or not at all: temporary file beside it, fsync, rename, fsync of the directory.
 */
int file_write_atomic(const char *path, const void *p, size_t n, mode_t mode);

/* Makes path and its missing parents with mode (parents 0755). 0 or -errno; an existing directory
 * is success. */
int dir_make_all(const char *path, mode_t mode);

/* Removes path and everything below, following no link. A missing path is success. 0 or -errno. */
int dir_remove_all(const char *path);

/* Fills p with n random bytes from the kernel; aborts when it can't. */
void random_bytes(void *p, size_t n);

/* A name nobody else has: first, and size - 2 random lower-case letters and digits, with a NUL. */
void random_id(char *out, size_t size, char first);
