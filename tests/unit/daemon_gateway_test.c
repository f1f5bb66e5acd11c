/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real space-egress, seen from spaced: started ahead, configured, left behind by a spaced that
 * dies and taken over by the next. In place of a slot it gets sockets on loopback. argv[1] is the
 * program; needs root for its jail, says so and skips without.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/str.h"
#include "daemon/gateway.h"
#include "http_loop.h"

#define TEST_UID 1899999999u

static char *libexec; /* where argv[1] is */

struct fixture {
	char *top, *dir;
	uv_loop_t loop;
	struct node node;
	struct slot slot;
	struct sockaddr_in dns; /* of slot.dns_udp_fd */
	json_t *policy, *secrets;
	bool ready, exited, active;
	struct err why;
};

static void on_ready(void *user)
{
	struct fixture *f = user;
	assert_false(f->ready);
	f->ready = true;
}

static void on_exited(void *user, const struct err *why)
{
	struct fixture *f = user;
	assert_false(f->exited);
	f->exited = true;
	f->why = *why;
}

static void on_active(void *user)
{
	struct fixture *f = user;
	f->active = true;
}

static const struct gateway_ops ops = {.ready = on_ready, .exited = on_exited, .active = on_active};

static int loopback(int type, struct sockaddr_in *ret)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(any);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 4), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &n), 0);
	if (ret)
		*ret = any;
	return fd;
}

/* What a spaced has; both spaceds of a test share the directories and the slot. */
static void node_open(struct fixture *f)
{
	struct err e = {0};
	auto_free char *ca = str_printf("%s/ca", f->top);
	auto_free char *audit = str_printf("%s/audit", f->top);
	assert_true(dir_make_all(ca, 0700) == 0 && dir_make_all(audit, 0700) == 0);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	f->node = (struct node){.loop = &f->loop, .paths.libexec = libexec};
	f->node.ca = ca_open(ca, &e);
	f->node.audit = audit_open(audit, &e);
	if (!f->node.ca || !f->node.audit)
		fail_msg("%s", e.text);
}

static void fixture_init(struct fixture *f)
{
	char top[] = "/tmp/space-gateway-XXXXXX", part[60];
	struct err e = {0};
	if (geteuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	*f = (struct fixture){0};
	assert_non_null(mkdtemp(top));
	f->top = strdup(top);
	memset(part, 'd', sizeof(part)); /* longer than the path of a socket may be */
	f->dir = str_printf("%s/%.60s/%.60s", top, part, part);
	assert_int_equal(dir_make_all(f->dir, 0711), 0);
	f->slot = (struct slot){
		.netns_fd = -1,
		.tap_fd = -1,
		.tcp_fd = loopback(SOCK_STREAM, NULL),
		.dns_udp_fd = loopback(SOCK_DGRAM, &f->dns),
		.dns_tcp_fd = loopback(SOCK_STREAM, NULL),
	};
	static const char policy[] = "{\"egress\":[{\"host\":\"api.test\"}]}";
	f->policy = doc_parse_json(policy, strlen(policy), &e);
	f->secrets = json_array();
}

static void fixture_done(struct fixture *f)
{
	audit_close(f->node.audit);
	ca_free(f->node.ca);
	loop_done(&f->loop);
	slot_close(&f->slot);
	json_decref(f->policy);
	json_decref(f->secrets);
	assert_int_equal(dir_remove_all(f->top), 0);
	free(f->dir);
	free(f->top);
}

static struct gateway *open_gateway(struct fixture *f)
{
	struct err e = {0};
	struct gateway *g = gateway_open(&f->node, "test", f->dir, TEST_UID, &ops, f, &e);
	if (!g)
		fail_msg("%s", e.text);
	return g;
}

static void configure(struct fixture *f, struct gateway *g)
{
	struct err e = {0};
	if (gateway_configure(g, "sb1", &f->slot, f->policy, f->secrets, &e) < 0)
		fail_msg("%s", e.text);
}

/* Asks for api.test; a socket where the answer comes, when it is allowed to. */
static int ask(const struct fixture *f)
{
	static const uint8_t question[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03"
					  "api\x04test\x00\x00\x01\x00\x01";
	int fd = loopback(SOCK_DGRAM, NULL);
	assert_int_equal(connect(fd, (const struct sockaddr *)&f->dns, sizeof(f->dns)), 0);
	assert_int_equal(send(fd, question, sizeof(question) - 1, 0), sizeof(question) - 1);
	return fd;
}

static bool has_answer(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

static void expect_answer(struct fixture *f, int fd)
{
	uint8_t answer[512];
	f->active = false;
	wait_for(&f->loop, &f->active);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_true(recv(fd, answer, sizeof(answer), 0) > 12);
	assert_int_equal(answer[7], 1); /* one answer */
	close(fd);
}

/* A spaced that starts a gateway, and dies when it is ready. */
static struct gateway_identity left_behind(struct fixture *f)
{
	struct gateway_identity who;
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		node_open(f);
		struct gateway *g = open_gateway(f);
		configure(f, g);
		wait_for(&f->loop, &f->ready);
		who = gateway_identity(g);
		_exit(write(ends[1], &who, sizeof(who)) == sizeof(who) ? 0 : 1);
	}
	int status;
	close(ends[1]);
	assert_int_equal(read(ends[0], &who, sizeof(who)), sizeof(who));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(ends[0]);
	return who;
}

static void kill_gateway(struct fixture *f, struct gateway *g)
{
	gateway_kill(g);
	wait_for(&f->loop, &f->exited);
}

static void gateway_waits_and_is_configured_later(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f);
	node_open(&f);
	struct gateway *g = open_gateway(&f);
	struct gateway_identity who = gateway_identity(g);
	uint64_t started;
	assert_int_equal(proc_started(who.pid, &started), 0);
	assert_true(started == who.started && started > 0);
	spin(&f.loop, 20);
	assert_false(f.ready || f.exited);
	configure(&f, g);
	wait_for(&f.loop, &f.ready);
	expect_answer(&f, ask(&f));
	kill_gateway(&f, g);
	assert_int_equal(proc_started(who.pid, &started), -ESRCH);
	fixture_done(&f);
}

static int count_line(void *user, const char *line, size_t len)
{
	int *count = user;
	assert_non_null(memmem(line, len, "egress.dns", strlen("egress.dns")));
	(*count)++;
	return 0;
}

static void what_a_gateway_says_at_once_is_written_one_by_one(void **state)
{
	(void)state;
	struct fixture f;
	struct err e = {0};
	int fds[3], count = 0;
	fixture_init(&f);
	node_open(&f);
	struct gateway *g = open_gateway(&f);
	configure(&f, g);
	wait_for(&f.loop, &f.ready);
	assert_int_equal(kill(gateway_identity(g).pid, SIGSTOP), 0);
	for (size_t i = 0; i < 3; i++)
		fds[i] = ask(&f);
	assert_int_equal(kill(gateway_identity(g).pid, SIGCONT), 0);
	for (size_t i = 0; i < 3; i++) {
		struct pollfd p = {.fd = fds[i], .events = POLLIN};
		for (int turns = 0; poll(&p, 1, 10) == 0; turns++) {
			assert_true(turns < WAIT_MS / 10);
			uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		close(fds[i]);
	}
	auto_free char *dir = str_printf("%s/audit", f.top);
	assert_int_equal(audit_each(dir, "sb1", count_line, &count, &e), 0);
	assert_int_equal(count, 3);
	kill_gateway(&f, g);
	fixture_done(&f);
}

struct answer {
	bool came;
	int code;
	char text[ERR_TEXT_MAX];
};

static void on_changed(void *user, const struct err *why)
{
	struct answer *a = user;
	assert_false(a->came);
	a->came = true;
	a->code = why ? why->code : 0;
	snprintf(a->text, sizeof(a->text), "%s", why ? why->text : "");
}

static int set_policy(struct gateway *g, const char *text, struct answer *a)
{
	struct err e = {0};
	*a = (struct answer){0};
	auto_json json_t *policy = doc_parse_json(text, strlen(text), &e);
	assert_non_null(policy);
	return gateway_set_policy(g, policy, on_changed, a, &e);
}

/* Asks for api.test and gets no address. */
static void expect_refusal(struct fixture *f)
{
	uint8_t answer[512];
	int fd = ask(f);
	f->active = false;
	wait_for(&f->loop, &f->active);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_true(recv(fd, answer, sizeof(answer), 0) >= 12);
	assert_int_equal(answer[3] & 15, 3); /* NXDOMAIN */
	close(fd);
}

static void another_policy_is_obeyed_once_it_is_answered(void **state)
{
	(void)state;
	struct fixture f;
	struct answer a, b;
	fixture_init(&f);
	node_open(&f);
	struct gateway *g = open_gateway(&f);
	assert_int_equal(set_policy(g, "{}", &a), -EPIPE);
	configure(&f, g);
	wait_for(&f.loop, &f.ready);
	expect_answer(&f, ask(&f));

	assert_int_equal(set_policy(g, "{\"egress\":[]}", &a), 0);
	assert_int_equal(set_policy(g, "{}", &b), -EBUSY);
	wait_for(&f.loop, &a.came);
	assert_int_equal(a.code, 0);
	expect_refusal(&f);

	assert_int_equal(set_policy(g, "{\"nonsense\":1}", &a), 0);
	wait_for(&f.loop, &a.came);
	assert_int_equal(a.code, EINVAL);
	assert_non_null(strstr(a.text, "nonsense"));
	expect_refusal(&f);
	assert_false(f.exited);
	kill_gateway(&f, g);
	fixture_done(&f);
}

static void who_waits_for_a_policy_is_told_that_the_gateway_is_gone(void **state)
{
	(void)state;
	struct fixture f;
	struct answer a;
	fixture_init(&f);
	node_open(&f);
	struct gateway *g = open_gateway(&f);
	configure(&f, g);
	wait_for(&f.loop, &f.ready);
	assert_int_equal(kill(gateway_identity(g).pid, SIGSTOP), 0);
	assert_int_equal(set_policy(g, "{}", &a), 0);
	kill_gateway(&f, g);
	assert_true(a.came);
	assert_int_equal(a.code, EPIPE);
	fixture_done(&f);
}

static int tell(struct gateway *g, const char *verb, const char *text, struct answer *a)
{
	struct err e = {0};
	*a = (struct answer){0};
	json_t *what = json_loads(text, JSON_DECODE_ANY, NULL);
	assert_non_null(what);
	return gateway_secret(g, verb, what, on_changed, a, &e);
}

#define ENTRY "{\"name\":\"T\",\"hosts\":[\"api.test\"],\"value\":\"v-1\"}"

static void credentials_are_told_one_by_one_and_answered_in_order(void **state)
{
	(void)state;
	struct fixture f;
	struct answer a[6], policy;
	fixture_init(&f);
	node_open(&f);
	struct gateway *g = open_gateway(&f);
	assert_int_equal(tell(g, "put", ENTRY, &a[0]), -EPIPE);
	configure(&f, g);
	wait_for(&f.loop, &f.ready);

	assert_int_equal(tell(g, "put", ENTRY, &a[0]), 0);
	assert_int_equal(tell(g, "renew", "{\"name\":\"T\",\"value\":\"v-2\"}", &a[1]), 0);
	assert_int_equal(tell(g, "renew", "{\"name\":\"U\",\"value\":\"v-2\"}", &a[2]), 0);
	assert_int_equal(set_policy(g, "{\"egress\":[{\"host\":\"api.test\"}]}", &policy), 0);
	assert_int_equal(tell(g, "revoke", "\"T\"", &a[3]), 0);
	assert_int_equal(tell(g, "revoke", "\"T\"", &a[4]), 0);
	wait_for(&f.loop, &a[4].came);
	static const int codes[] = {0, 0, EINVAL, 0, EINVAL};
	for (size_t i = 0; i < 5; i++) {
		assert_true(a[i].came);
		assert_int_equal(a[i].code, codes[i]);
	}
	assert_true(policy.came && !policy.code);
	assert_non_null(strstr(a[2].text, "U"));

	/* What does not fit into the socket waits for room there. */
	auto_free char *large = calloc(1, 60001);
	memset(large, 'x', 60000);
	auto_free char *renewal = str_printf("{\"name\":\"T\",\"value\":\"%s\"}", large);
	struct answer many[64];
	assert_int_equal(tell(g, "put", ENTRY, &a[0]), 0);
	assert_int_equal(kill(gateway_identity(g).pid, SIGSTOP), 0);
	for (size_t i = 0; i < 64; i++)
		assert_int_equal(tell(g, "renew", renewal, &many[i]), 0);
	assert_int_equal(kill(gateway_identity(g).pid, SIGCONT), 0);
	wait_for(&f.loop, &many[63].came);
	for (size_t i = 0; i < 64; i++)
		assert_true(many[i].came && !many[i].code);

	assert_int_equal(kill(gateway_identity(g).pid, SIGSTOP), 0);
	assert_int_equal(tell(g, "revoke", "\"T\"", &a[5]), 0);
	kill_gateway(&f, g);
	assert_true(a[5].came);
	assert_int_equal(a[5].code, EPIPE);
	fixture_done(&f);
}

static void gateway_that_nobody_configured_can_be_killed(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f);
	node_open(&f);
	kill_gateway(&f, open_gateway(&f));
	assert_false(f.ready);
	fixture_done(&f);
}

static void bad_configuration_is_told(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f);
	node_open(&f);
	json_object_set_new(f.policy, "egress", json_string("everything"));
	configure(&f, open_gateway(&f));
	wait_for(&f.loop, &f.exited);
	assert_false(f.ready);
	assert_non_null(strstr(f.why.text, "egress"));
	fixture_done(&f);
}

static void end_of_the_process_is_noticed(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f);
	node_open(&f);
	struct gateway *g = open_gateway(&f);
	kill(gateway_identity(g).pid, SIGKILL);
	wait_for(&f.loop, &f.exited);
	assert_non_null(strstr(f.why.text, "gateway"));
	fixture_done(&f);
}

static void next_spaced_takes_over(void **state)
{
	(void)state;
	struct fixture f;
	struct err e = {0};
	fixture_init(&f);
	struct gateway_identity who = left_behind(&f);
	int early = ask(&f);
	node_open(&f);
	struct gateway *g = gateway_adopt(&f.node, "sb1", f.dir, TEST_UID, &who, &ops, &f, &e);
	if (!g)
		fail_msg("%s", e.text);
	assert_false(has_answer(early));
	expect_answer(&f, early);
	assert_true(f.ready);
	expect_answer(&f, ask(&f));
	assert_int_equal(gateway_identity(g).pid, who.pid);

	/* Nobody else gets it meanwhile. */
	struct fixture other = {.top = NULL};
	struct gateway *second =
		gateway_adopt(&f.node, "sb1", f.dir, TEST_UID + 1, &who, &ops, &other, &e);
	assert_null(second);
	assert_int_equal(e.code, EPERM);
	kill_gateway(&f, g);
	assert_null(gateway_adopt(&f.node, "sb1", f.dir, TEST_UID, &who, &ops, &f, &e));
	assert_int_equal(e.code, ESRCH);
	fixture_done(&f);
}

static void gateway_of_another_sandbox_is_ended(void **state)
{
	(void)state;
	struct fixture f;
	struct err e = {0};
	fixture_init(&f);
	struct gateway_identity who = left_behind(&f);
	node_open(&f);
	assert_non_null(gateway_adopt(&f.node, "sb2", f.dir, TEST_UID, &who, &ops, &f, &e));
	wait_for(&f.loop, &f.exited);
	assert_false(f.ready);
	assert_non_null(strstr(f.why.text, "another sandbox"));
	fixture_done(&f);
}

static void gateway_that_cannot_be_called_is_ended(void **state)
{
	(void)state;
	struct fixture f;
	struct err e = {0};
	fixture_init(&f);
	struct gateway_identity who = left_behind(&f);
	auto_free char *path = str_printf("%s/gateway", f.dir);
	assert_int_equal(unlink(path), 0);
	node_open(&f);
	assert_non_null(gateway_adopt(&f.node, "sb1", f.dir, TEST_UID, &who, &ops, &f, &e));
	wait_for(&f.loop, &f.exited);
	assert_false(f.ready);
	assert_non_null(strstr(f.why.text, "calling it"));
	fixture_done(&f);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	char *program = realpath(argv[1], NULL); /* what is jailed begins in another directory */
	if (!program)
		return 2;
	libexec = dirname(program);
	log_init("daemon_gateway_test", false);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gateway_waits_and_is_configured_later),
		cmocka_unit_test(what_a_gateway_says_at_once_is_written_one_by_one),
		cmocka_unit_test(gateway_that_nobody_configured_can_be_killed),
		cmocka_unit_test(another_policy_is_obeyed_once_it_is_answered),
		cmocka_unit_test(who_waits_for_a_policy_is_told_that_the_gateway_is_gone),
		cmocka_unit_test(credentials_are_told_one_by_one_and_answered_in_order),
		cmocka_unit_test(bad_configuration_is_told),
		cmocka_unit_test(end_of_the_process_is_noticed),
		cmocka_unit_test(next_spaced_takes_over),
		cmocka_unit_test(gateway_of_another_sandbox_is_ended),
		cmocka_unit_test(gateway_that_cannot_be_called_is_ended),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(program);
	return failed;
}
