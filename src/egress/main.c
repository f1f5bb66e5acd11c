/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-egress: the gateway of one sandbox. Started by spaced with a control socket as descriptor
 * 3, and as 4 one that listens for the next spaced. Before anything is read: no core dumps, no
 * tracing by others of our uid, no new privileges, secrets wiped when freed.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/doc.h"
#include "base/err.h"
#include "base/log.h"
#include "egress/calls.h"
#include "egress/gateway.h"

#define CONTROL_FD 3
#define LISTEN_FD  4
#define EXIT_USAGE 2
#define FILES      5120 /* GUESTS_MAX twice, idle upstreams, DNS, the rest */

static int harden(struct err *e)
{
	struct rlimit none = {0};
	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return err_sys(e, errno, "turning core dumps off");
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return err_sys(e, errno, "PR_SET_DUMPABLE");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, errno, "PR_SET_NO_NEW_PRIVS");
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return err_sys(e, errno, "ignoring SIGPIPE");
	umask(077);
	return 0;
}

/* Each connection of the guest may need one outside, and the usual limit is for programs that use
 * select(). */
static int raise_files(struct err *e)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(e, errno, "reading the limit of open files");
	if (files.rlim_max < FILES)
		return err_set(e, EMFILE, "%d open files are needed, the hard limit is %llu", FILES,
			       (unsigned long long)files.rlim_max);
	if (files.rlim_cur >= FILES)
		return 0;
	files.rlim_cur = FILES;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(e, errno, "raising the limit of open files");
	return 0;
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: space-egress [--resolver ADDRESS:PORT]\n"
		"The gateway of one sandbox; spaced starts it, with a control socket as "
		"descriptor 3\n"
		"and one that listens as 4.\n"
		"  --resolver ADDRESS:PORT  ask this DNS server instead of the system's\n"
		"  --calls                  print the filter of its system calls, an instruction of "
		"BPF a line\n");
}

/* For who starts it: it is confined before it runs. */
static int print_calls(void)
{
	struct calls_filter f;
	struct err e;
	if (egress_calls(&f, &e) < 0) {
		log_error("%s", e.text);
		return 1;
	}
	int r = calls_print(&f, stdout);
	calls_done(&f);
	return r < 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"resolver", required_argument, NULL, 'r'},
		{"calls", no_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	const char *resolver = NULL;
	struct err e = {0};
	doc_wipe_on_free();
	log_init("space-egress", false);
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (c) {
		case 'r':
			resolver = optarg;
			break;
		case 'c':
			return print_calls();
		case 'h':
			usage(stdout);
			return 0;
		case 'V':
			puts("space-egress " SPACE_VERSION);
			return 0;
		default:
			usage(stderr);
			return EXIT_USAGE;
		}
	}
	if (optind != argc) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (harden(&e) < 0 || raise_files(&e) < 0 ||
	    gateway_run(CONTROL_FD, LISTEN_FD, resolver, &e) < 0) {
		log_error("%s", e.text);
		return 1;
	}
	return 0;
}
