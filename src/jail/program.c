/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the dynamic loader says that a program loads. It is asked once for each program and its
 * answer kept, with the identity of the file, for as long as this process lives: some ten
 * milliseconds that no start should wait for.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/proc.h"
#include "base/str.h"
#include "jail/jail.h"

#define LOADER       "/lib64/ld-linux-x86-64.so.2"
#define LIST_MAX     (256 * 1024) /* bytes of its answer */
#define PROGRAMS_MAX 8            /* different ones in a process */
#define FILES_MAX    512          /* of one */

struct jail_program {
	char *path;
	dev_t dev;
	ino_t inode;
	struct timespec changed;
	struct jail_file files[FILES_MAX];
	size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jail_program *known[PROGRAMS_MAX];

static void program_free(struct jail_program *p)
{
	for (size_t i = 0; i < p->count; i++)
		free((char *)p->files[i].path);
	free(p->path);
	free(p);
}

/* path is a heap string, taken over; NULL: there was no memory for it. */
static int add(struct jail_program *p, char *path, unsigned flags, struct err *e)
{
	if (!path)
		return err_set(e, ENOMEM, "no memory");
	if (p->count == FILES_MAX) {
		free(path);
		return err_set(e, E2BIG, "%s loads more than %d files", p->path, FILES_MAX);
	}
	for (size_t i = 0; i < p->count; i++)
		if (str_eq(p->files[i].path, path)) {
			free(path);
			return 0;
		}
	p->files[p->count++] = (struct jail_file){path, flags};
	return 0;
}

/* "\tNAME => PATH (ADDRESS)", "\tPATH (ADDRESS)" for the loader, "\tNAME (ADDRESS)" for what the
 * kernel maps, "\tNAME => not found". */
static int read_line(struct jail_program *p, const char *line, size_t n, struct err *e)
{
	auto_free char *text = strndup(line, n);
	char *arrow = text ? strstr(text, " => ") : NULL;
	char *path = arrow ? arrow + 4 : text;

	if (!text)
		return err_set(e, ENOMEM, "no memory");
	path += strspn(path, " \t");
	if (str_starts(path, "not found"))
		return err_set(e, ENOENT, "%s needs the library%.*s, which is not there", p->path,
			       (int)(arrow - text), text);
	if (path[0] != '/')
		return 0;
	path[strcspn(path, " ")] = '\0';
	return add(p, strdup(path), JAIL_FILE_CODE, e);
}

static int ask_loader(struct jail_program *p, struct err *e)
{
	const char *const argv[] = {LOADER, "--list", p->path, NULL};
	auto_free char *text = NULL;
	int rc = proc_output(argv, LIST_MAX, &text, e);

	for (const char *line = text; rc == 0 && line && *line;) {
		size_t n = strcspn(line, "\n");

		rc = read_line(p, line, n, e);
		line += n + (line[n] == '\n');
	}
	if (rc == 0)
		rc = add(p, strdup(LOADER), JAIL_FILE_CODE, e);
	return rc;
}

static struct jail_program *program_new(const char *path, const struct stat *st, struct err *e)
{
	struct jail_program *p = calloc(1, sizeof(*p));
	int rc = 0;

	if (p)
		p->path = strdup(path);
	if (!p || !p->path) {
		free(p);
		err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	p->dev = st->st_dev;
	p->inode = st->st_ino;
	p->changed = st->st_mtim;
	rc = add(p, strdup(path), JAIL_FILE_CODE, e);
	if (rc == 0)
		rc = add(p, strdup("/etc/ld.so.cache"), JAIL_FILE_OPTIONAL, e);
	if (rc == 0)
		rc = ask_loader(p, e);
	if (rc == 0)
		return p;
	program_free(p);
	return NULL;
}

static bool is_same(const struct jail_program *p, const char *path, const struct stat *st)
{
	return str_eq(p->path, path) && p->dev == st->st_dev && p->inode == st->st_ino &&
	       p->changed.tv_sec == st->st_mtim.tv_sec && p->changed.tv_nsec == st->st_mtim.tv_nsec;
}

/* Where it is or could be kept; NULL: all places are taken by others. An old answer stays where it
   was, for somebody may be using it: an update of a program costs a place. */
static struct jail_program **find(const char *path, const struct stat *st)
{
	for (size_t i = 0; i < PROGRAMS_MAX; i++)
		if (!known[i] || is_same(known[i], path, st))
			return &known[i];
	return NULL;
}

const struct jail_program *jail_program(const char *path, struct err *e)
{
	struct jail_program **at, *p = NULL;
	struct stat st;

	if (stat(path, &st) < 0) {
		err_sys(e, errno, "%s", path);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	at = find(path, &st);
	if (!at)
		err_set(e, ENOSPC, "%s was replaced too often: restart spaced", path);
	else if (!*at)
		*at = program_new(path, &st, e);
	p = at ? *at : NULL;
	pthread_mutex_unlock(&lock);
	return p;
}

struct jail_file *jail_program_files(const struct jail_program *program,
				     const struct jail_file *more, size_t nmore, size_t *ret_count)
{
	struct jail_file *all = calloc(program->count + nmore, sizeof(*all));

	if (!all)
		return NULL;
	memcpy(all, program->files, program->count * sizeof(*all));
	if (nmore > 0)
		memcpy(all + program->count, more, nmore * sizeof(*all));
	*ret_count = program->count + nmore;
	return all;
}
