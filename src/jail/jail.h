/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a process with as little as it needs: own uid, namespaces, no capabilities, no new
 * privileges, no core dumps. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/calls.h"
#include "base/err.h"

#define JAIL_FDS_MAX 64

struct jail_fd {
	int from; /* ours */
	int to; /* its number in the child, >= 3; the list is sorted by it; what it doesn't name is
		   closed */
	bool tree; /* a directory: it gets that and what is below, read-only, and no way up */
};

/* -- a root directory with a few files in it -- */

enum {
	JAIL_FILE_CODE = 1,     /* may be executed; all others not */
	JAIL_FILE_DEVICE = 2,   /* a device to be opened */
	JAIL_FILE_OPTIONAL = 4, /* nothing when it is not there */
	JAIL_FILE_PLACE = 8,    /* an empty file instead, for jail_show() */
};

/* A file, or a directory with all below it, that the process sees where the host has it. What a
   symbolic link leads to is seen in its place. */
struct jail_file {
	const char *path; /* absolute */
	unsigned flags;
};

/* What a program of the host needs to run: itself and its libraries. */
struct jail_program;

/* Asks the dynamic loader, once for as long as the program's file is the same one. NULL with e set,
   which names what is missing. Not to be freed. */
const struct jail_program *jail_program(const char *path, struct err *e);

/* All that it needs and those of more, a heap array for jail_spec.files; NULL: no memory. */
struct jail_file *jail_program_files(const struct jail_program *program,
				     const struct jail_file *more, size_t nmore, size_t *ret_count);

/* Shows path of the host, a file, in the place that a running process has for it (JAIL_FILE_PLACE),
   read-only. 0 or -errno with e set. */
int jail_show(int pidfd, const char *path, const char *place, struct err *e);

struct jail_spec {
	const char *name;        /* for errors */
	const char *const *argv; /* argv[0] is a path; no PATH look-up */
	const char *const *env;  /* the whole environment; NULL: empty */
	const struct jail_fd *fds;
	size_t nfds;   /* <= JAIL_FDS_MAX */
	int stdout_fd; /* also standard error; -1: /dev/null. Standard input is /dev/null */
	uid_t uid;     /* and gid; not 0, and its alone: the limit on processes counts by uid */
	uint64_t file_bytes_max; /* no file that it writes grows past this; 0: no limit */
	int netns_fd;            /* -1: stay in ours */
	bool outlives_parent;    /* not tied to the calling thread */
	bool own_pid;            /* a new PID namespace, the child its init */
	bool own_mount; /* new mount, IPC, UTS and cgroup namespaces; all mounts private and
			   read-only, own /proc with own_pid */
	const struct jail_file *files; /* with both: its root directory holds these, /proc, and no
					  more; NULL: it sees the host's */
	size_t nfiles;
	const struct calls_filter *filter; /* of its system calls, from exec on; NULL: none */
};

/* Starts it. Unless it is to outlive us it dies with the calling thread (PDEATHSIG), so call from
   the main thread. Any step that fails stops the start: e says which, and nothing is left. On
   success *ret_pid is running argv (exec has happened), *ret_pidfd is the caller's to close, and
   the caller reaps: waitid(P_PIDFD). 0 or -errno. */
int jail_spawn(const struct jail_spec *spec, pid_t *ret_pid, int *ret_pidfd, struct err *e);
