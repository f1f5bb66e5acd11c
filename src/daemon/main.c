/* SPDX-License-Identifier: Apache-2.0 */
/* spaced: the node's daemon. Arguments, lock, signals, start and end; the rest is in the other
 * files. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/dirs.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/api.h"
#include "daemon/broker.h"
#include "daemon/doctor.h"
#include "daemon/images.h"
#include "daemon/place.h"
#include "daemon/ready.h"
#include "daemon/sandbox.h"
#include "daemon/secrets.h"
#include "daemon/template.h"
#include "jail/userns.h"

#define EXIT_SPACE   125
#define USERNS_NOTE  "userns"          /* in the run directory */
#define IDLE_EXIT_MS (10u * 60 * 1000) /* --auto: without a living sandbox for so long */
#define COLLECT_MS   (3600u * 1000)    /* between looks at templates that nobody uses */
#define FD_LIMIT     65536             /* open files that we ask for; a sandbox takes some ten */
#define FD_LIMIT_MIN 1024              /* below which nothing is started */

struct options {
	bool automatic; /* started by `space` for a call */
	bool verbose;
	bool rootless;      /* another user than root called us */
	const char *config; /* NULL: where it always is */
	int ready_fd;       /* gets a byte when the API listens; -1: none */
};

struct daemon {
	struct node node;
	struct api *api;
	uv_signal_t term, interrupt;
	uv_timer_t idle, collect;
	int lock_fd;
};

static const char help[] =
	"usage: spaced [--auto] [--config FILE] [--ready-fd N] [--verbose]\n"
	"                                                    serve the API on the node's unix socket\n"
	"       spaced doctor [--json]                       what this host offers, what is missing\n"
	"       spaced doctor --jail                         how monitors and gateways are confined\n"
	"       spaced image build NAME [--force] | ls [--json] | rm NAME\n"
	"       spaced --version | --help\n";

static int usage(void)
{
	fputs(help, stderr);
	return EXIT_SPACE;
}

/* The hard limit too, where we may. */
static int raise_file_limit(struct err *e)
{
	struct rlimit files;
	const struct rlimit wanted = {FD_LIMIT, FD_LIMIT};
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(e, errno, "can't tell how many files may be open");
	if (files.rlim_cur >= FD_LIMIT)
		return 0;
	if (files.rlim_max < FD_LIMIT && setrlimit(RLIMIT_NOFILE, &wanted) == 0)
		return 0;
	if (files.rlim_max < FD_LIMIT_MIN)
		return err_set(e, EMFILE, "%d open files are needed, the hard limit is %ju",
			       FD_LIMIT_MIN, (uintmax_t)files.rlim_max);
	files.rlim_cur = files.rlim_max < FD_LIMIT ? files.rlim_max : FD_LIMIT;
	return setrlimit(RLIMIT_NOFILE, &files) < 0
		       ? err_sys(e, errno, "can't raise the limit of open files")
		       : 0;
}

/* No core dumps and no ptrace by others: secrets pass through here. */
static int harden(struct err *e)
{
	const struct rlimit none = {0, 0};
	umask(077);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
		return err_sys(e, errno, "can't turn core dumps off");
	return raise_file_limit(e);
}

/* -EALREADY: another spaced serves this node. */
static int take_lock(struct daemon *d, struct err *e)
{
	d->lock_fd = open(d->node.paths.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (d->lock_fd < 0)
		return err_sys(e, errno, "can't open %s", d->node.paths.lock);
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return err_set(e, EALREADY, "another spaced serves %s", d->node.paths.run);
}

static int open_node(struct node *n, struct err *e)
{
	vmm_probe(&n->host);
	n->fingerprint = vmm_fingerprint(&n->host);
	if (!n->fingerprint)
		return err_set(e, ENOMEM, "no memory");
	n->ca = ca_open(n->paths.ca, e);
	if (n->ca)
		n->audit = audit_open(n->paths.audit, e);
	if (n->audit)
		n->store = store_open(n->paths.db, e);
	if (n->store)
		n->credentials = credentials_open(n, e);
	if (n->credentials)
		n->broker = broker_new(n, e);
	return n->broker ? sandbox_restore_all(n, e) : -EIO;
}

static void on_handle(uv_handle_t *h, void *arg)
{
	(void)arg;
	if (!uv_is_closing(h))
		uv_unref(h);
}

/* The last sandbox is gone: what is still open needs no loop. */
static void leave(struct daemon *d)
{
	if (d->api)
		api_close(take_ptr(d->api));
	ready_stop(&d->node);
	place_kill_all(&d->node);
	audit_write(d->node.audit, NULL, "node.stop", NULL, NULL);
	uv_walk(d->node.loop, on_handle, NULL);
	uv_stop(d->node.loop);
}

static void on_idle_timer(uv_timer_t *t)
{
	struct daemon *d = t->data;
	if (d->node.live == 0)
		leave(d);
}

static void on_idle(struct node *n)
{
	struct daemon *d = list_entry(n, struct daemon, node);
	if (n->closing)
		uv_timer_start(&d->idle, on_idle_timer, 1,
			       0); /* this turn's answers go out first */
	else
		uv_timer_again(&d->idle); /* without --auto it was never started, and stays so */
}

static void on_collect_timer(uv_timer_t *t)
{
	struct daemon *d = t->data;
	template_collect(&d->node);
}

static void on_signal(uv_signal_t *s, int number)
{
	struct daemon *d = s->data;
	if (d->node.closing)
		return;
	log_info("signal %d: ending %u sandboxes", number, d->node.live);
	d->node.closing = true;
	if (d->node.live == 0)
		leave(d);
	else
		sandbox_stop_all(&d->node);
}

static void watch(struct daemon *d, const struct options *o)
{
	uv_loop_t *loop = d->node.loop;
	uv_signal_init(loop, &d->term);
	uv_signal_init(loop, &d->interrupt);
	uv_timer_init(loop, &d->idle);
	uv_timer_init(loop, &d->collect);
	d->term.data = d->interrupt.data = d->idle.data = d->collect.data = d;
	uv_timer_start(&d->collect, on_collect_timer, COLLECT_MS, COLLECT_MS);
	uv_signal_start(&d->term, on_signal, SIGTERM);
	uv_signal_start(&d->interrupt, on_signal, SIGINT);
	if (o->automatic)
		uv_timer_start(&d->idle, on_idle_timer, IDLE_EXIT_MS, IDLE_EXIT_MS);
	d->node.on_idle = on_idle;
}

static int announce(const struct options *o, struct daemon *d, struct err *e)
{
	int r = audit_write(d->node.audit, NULL, "node.start",
			    json_pack("{s:s}", "version", SPACE_VERSION), e);
	if (r == 0 && o->ready_fd >= 0) {
		r = fd_write_all(o->ready_fd, "1", 1);
		close(o->ready_fd);
		if (r == -EPIPE)
			r = 0; /* who started us has given up waiting */
	}
	return r;
}

static int note_userns(const struct paths *p, struct err *e)
{
	auto_free char *note = str_printf("%s/" USERNS_NOTE, p->run);
	return note ? userns_write_note(note, e) : err_set(e, ENOMEM, "no memory");
}

static int serve(struct daemon *d, const struct options *o, struct err *e)
{
	int r = harden(e);
	if (r == 0)
		r = paths_init(&d->node.paths, e);
	if (r == 0)
		r = config_load(&d->node.config, o->config ? o->config : d->node.paths.config, e);
	if (r == 0)
		r = take_lock(d, e);
	if (r == 0 && o->rootless)
		r = note_userns(&d->node.paths, e);
	if (r == 0)
		r = userns_ids(NODE_UIDS, NODE_UID_BASE, &d->node.uid_base, e);
	if (r == 0)
		r = open_node(&d->node, e);
	if (r < 0)
		return r;
	template_collect(&d->node);
	d->node.ready = ready_new(&d->node, e);
	if (!d->node.ready)
		return -EIO;
	watch(d, o);
	d->api = api_listen(&d->node, e);
	if (!d->api)
		return -EIO;
	r = announce(o, d, e);
	if (r == 0)
		uv_run(d->node.loop, UV_RUN_DEFAULT);
	return r;
}

static int run_daemon(const struct options *o)
{
	static uv_loop_t loop;
	static struct daemon d; /* reachable to its end, so that no tool takes it for lost */
	struct err e = {0};
	d.lock_fd = -1;
	d.node.loop = &loop;
	config_defaults(&d.node.config);
	list_init(&d.node.sandboxes);
	list_init(&d.node.places);
	list_init(&d.node.templates);
	uv_loop_init(&loop);
	int r = serve(&d, o, &e);
	if (r == -EALREADY && o->automatic)
		r = 0;
	if (r < 0)
		log_error("%s", e.text);
	if (d.api)
		api_close(d.api);
	broker_free(d.node.broker);
	credentials_close(d.node.credentials);
	store_close(d.node.store);
	audit_close(d.node.audit);
	ca_free(d.node.ca);
	free(d.node.fingerprint);
	config_done(&d.node.config);
	paths_done(&d.node.paths);
	return r < 0 ? EXIT_SPACE : 0;
}

static int parse_options(int argc, char **argv, struct options *o)
{
	*o = (struct options){.ready_fd = -1};
	for (int i = 1; i < argc; i++) {
		uint64_t fd;
		if (str_eq(argv[i], "--auto")) {
			o->automatic = true;
		} else if (str_eq(argv[i], "--verbose")) {
			o->verbose = true;
		} else if (str_eq(argv[i], "--config") && i + 1 < argc) {
			o->config = argv[++i];
		} else if (str_eq(argv[i], "--ready-fd") && i + 1 < argc &&
			   str_to_u64(argv[i + 1], 3, 1023, &fd) == 0) {
			o->ready_fd = (int)fd;
			i++;
		} else {
			return -EINVAL;
		}
	}
	return o->ready_fd >= 0 ? fd_set_cloexec(o->ready_fd, true) : 0;
}

/* Another user than root is root in a user namespace from here on. */
static int become_root(struct err *e)
{
	if (geteuid() == 0)
		return 0;
	int r = dirs_set(e);
	if (r < 0)
		return r;
	const char *run = getenv("SPACE_RUN_DIR");
	auto_free char *note = str_printf("%s/" USERNS_NOTE, run);
	r = note ? dir_make_all(run, 0711) : -ENOMEM;
	return r < 0 ? err_sys(e, -r, "can't make directory %s", run) : userns_enter(note, e);
}

int main(int argc, char **argv)
{
	struct options o;
	struct err e;
	const bool rootless = geteuid() != 0;
	log_init("spaced", false);
	doc_wipe_on_free();
	if (argc > 1 && str_eq(argv[1], "--version"))
		return puts("spaced " SPACE_VERSION) < 0;
	if (argc > 1 && str_eq(argv[1], "--help"))
		return fputs(help, stdout) < 0;
	if (become_root(&e) < 0) {
		log_error("%s", e.text);
		return EXIT_SPACE;
	}
	if (argc == 3 && str_eq(argv[1], "doctor") && str_eq(argv[2], "--jail"))
		return doctor_jail();
	if (argc > 1 && str_eq(argv[1], "doctor"))
		return argc == 2 || (argc == 3 && str_eq(argv[2], "--json")) ? doctor(argc == 3)
									     : usage();
	if (argc > 1 && str_eq(argv[1], "image"))
		return images_command(argc - 2, argv + 2);
	if (parse_options(argc, argv, &o) < 0)
		return usage();
	o.rootless = rootless;
	log_init("spaced", o.verbose);
	return run_daemon(&o);
}
