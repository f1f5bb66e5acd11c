/* SPDX-License-Identifier: Apache-2.0 */
/* Streams over real sockets: order, backpressure, who may close when, what failures say. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "http_peer.h"

#define LARGE (50u * 1024 * 1024) /* bytes */

static uv_loop_t loop;

static int setup(void **state)
{
	(void)state;
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	(void)state;
	loop_done(&loop);
	return 0;
}

/* Listens on a free loopback port. */
static int listen_tcp(struct sockaddr_in *ret_addr, int backlog)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*ret_addr);
	*ret_addr = (struct sockaddr_in){.sin_family = AF_INET};
	ret_addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)ret_addr, len), 0);
	assert_int_equal(listen(fd, backlog), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret_addr, &len), 0);
	return fd;
}

static void make_tcp_pair(int fd[2])
{
	struct sockaddr_in addr;
	int l = listen_tcp(&addr, 1);
	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&addr, sizeof(addr)), 0);
	fd[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd[1] >= 0);
	close(l);
}

/* What happened to a stream under test, and which callback closes it. */
struct watched {
	struct stream *s;
	bool in_call; /* of ours: no callback may come */
	bool opened, got, eof, drained, closed;
	size_t bytes;
	enum { NEVER, OPENED, DATA, END, DRAINED } close_in;
	struct err why;
};

static void may_close(struct watched *w, int when)
{
	assert_false(w->in_call);
	assert_non_null(w->s);
	if ((int)w->close_in == when) {
		stream_close(w->s);
		w->s = NULL;
	}
}

static void on_opened(void *user)
{
	struct watched *w = user;
	w->opened = true;
	may_close(w, OPENED);
}

static void on_data(void *user, const uint8_t *p, size_t n)
{
	struct watched *w = user;
	assert_true(n > 0 && p);
	w->got = true;
	w->bytes += n;
	may_close(w, DATA);
}

static void on_eof(void *user)
{
	struct watched *w = user;
	assert_false(w->eof);
	w->eof = true;
	may_close(w, END);
}

static void on_drained(void *user)
{
	struct watched *w = user;
	w->drained = true;
	may_close(w, DRAINED);
}

static void on_closed(void *user, const struct err *why)
{
	struct watched *w = user;
	may_close(w, NEVER + 100);
	assert_true(why->code > 0 && *why->text);
	w->closed = true;
	w->why = *why;
	w->s = NULL;
}

static const struct stream_ops watched_ops = {on_opened, on_data, on_eof, on_drained, on_closed};

static void watch(struct watched *w, int fd)
{
	*w = (struct watched){0};
	w->s = stream_adopt(&loop, fd, &watched_ops, w, NULL);
	assert_non_null(w->s);
	stream_read(w->s, true);
}

static void drop(struct watched *w)
{
	if (w->s)
		stream_close(w->s);
	w->s = NULL;
}

static ssize_t say(struct watched *w, const void *p, size_t n)
{
	w->in_call = true;
	ssize_t r = stream_write(w->s, p, n);
	w->in_call = false;
	return r;
}

/* -- carrying -- */

static void stream_carries_bytes_both_ways(void **state)
{
	(void)state;
	void (*const make[])(int[2]) = {make_pair, make_tcp_pair};
	for (int i = 0; i < 2; i++) {
		int fd[2];
		make[i](fd);
		struct watched a;
		struct peer b;
		watch(&a, fd[0]);
		peer_open(&b, &loop, fd[1]);
		assert_true(say(&a, "hello", 5) >= 0);
		peer_await(&b, &loop, "hello");
		peer_say(&b, "world");
		wait_for(&loop, &a.got);
		assert_int_equal(a.bytes, 5);
		assert_int_equal(stream_bytes_in(a.s), 5);
		assert_int_equal(stream_bytes_out(a.s), 5);
		assert_false(a.opened); /* it was open from the start */
		drop(&a);
		peer_done(&b);
	}
}

static void small_writes_leave_in_one_piece(void **state)
{
	(void)state;
	int fd[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	struct watched a;
	watch(&a, fd[0]);
	say(&a, "head ", 5);
	say(&a, "body", 4);
	wait_for(&loop, &a.drained);
	char got[32];
	assert_int_equal(recv(fd[1], got, sizeof(got), 0), 9);
	drop(&a);
	close(fd[1]);
}

static void paused_stream_delivers_nothing_until_resumed(void **state)
{
	(void)state;
	int fd[2];
	make_pair(fd);
	struct watched a;
	watch(&a, fd[0]);
	stream_read(a.s, false);
	assert_int_equal(send(fd[1], "x", 1, 0), 1);
	close(fd[1]);
	spin(&loop, 20);
	assert_false(a.got || a.eof);
	stream_read(a.s, true);
	wait_for(&loop, &a.eof);
	assert_int_equal(a.bytes, 1);
	drop(&a);
}

/* A polite writer of LARGE bytes, each its offset modulo a prime. */
struct pump {
	struct stream *s;
	size_t sent, most_queued;
	bool done;
};

static void pump_more(void *user)
{
	struct pump *p = user;
	uint8_t chunk[50000];
	while (p->sent < LARGE) {
		size_t n = LARGE - p->sent < sizeof(chunk) ? LARGE - p->sent : sizeof(chunk);
		for (size_t i = 0; i < n; i++)
			chunk[i] = (uint8_t)((p->sent + i) % 251);
		ssize_t queued = stream_write(p->s, chunk, n);
		assert_true(queued >= 0);
		p->sent += n;
		if ((size_t)queued > p->most_queued)
			p->most_queued = (size_t)queued;
		if (queued > STREAM_QUEUE_HIGH)
			return;
	}
	if (!p->done) {
		p->done = true;
		stream_shutdown(p->s);
	}
}

static const struct stream_ops pump_ops = {.drained = pump_more};

/* A reader that pauses after each piece until the next tick. */
struct sipper {
	struct stream *s;
	uv_timer_t tick;
	size_t got;
	bool eof;
};

static void sip_again(uv_timer_t *t)
{
	struct sipper *r = t->data;
	stream_read(r->s, true);
}

static void sip(void *user, const uint8_t *p, size_t n)
{
	struct sipper *r = user;
	for (size_t i = 0; i < n; i++)
		if (p[i] != (uint8_t)((r->got + i) % 251))
			fail_msg("byte %zu is wrong", r->got + i);
	r->got += n;
	stream_read(r->s, false);
	uv_timer_start(&r->tick, sip_again, 0, 0);
}

static void sip_eof(void *user)
{
	((struct sipper *)user)->eof = true;
}

static const struct stream_ops sip_ops = {.data = sip, .eof = sip_eof};

static void slow_reader_bounds_the_queue(void **state)
{
	(void)state;
	void (*const make[])(int[2]) = {make_pair, make_tcp_pair};
	for (int i = 0; i < 2; i++) {
		int fd[2];
		make[i](fd);
		struct pump w = {0};
		struct sipper r = {0};
		w.s = stream_adopt(&loop, fd[0], &pump_ops, &w, NULL);
		r.s = stream_adopt(&loop, fd[1], &sip_ops, &r, NULL);
		uv_timer_init(&loop, &r.tick);
		r.tick.data = &r;
		stream_read(r.s, true);
		pump_more(&w);
		wait_for(&loop, &r.eof);
		assert_int_equal(r.got, LARGE);
		assert_true(w.most_queued <= STREAM_QUEUE_HIGH + 50000);
		assert_true(w.most_queued > STREAM_QUEUE_HIGH); /* it did push back */
		stream_close(w.s);
		stream_close(r.s);
		uv_close((uv_handle_t *)&r.tick, NULL);
		spin(&loop, 2);
	}
}

/* -- ends -- */

static void shutdown_lets_the_other_direction_go_on(void **state)
{
	(void)state;
	int fd[2];
	make_tcp_pair(fd);
	struct watched a;
	struct peer b;
	watch(&a, fd[0]);
	peer_open(&b, &loop, fd[1]);
	say(&a, "last", 4);
	stream_shutdown(a.s);
	assert_int_equal(say(&a, "x", 1), -EPIPE);
	wait_for(&loop, &b.eof);
	assert_string_equal(peer_heard(&b), "last");
	peer_say(&b, "still here");
	wait_for(&loop, &a.got);
	assert_int_equal(a.bytes, 10);
	assert_false(a.closed);
	drop(&a);
	peer_done(&b);
}

static void graceful_close_delivers_all_that_was_queued(void **state)
{
	(void)state;
	int fd[2];
	make_tcp_pair(fd);
	struct watched a;
	struct peer b;
	watch(&a, fd[0]);
	size_t n = 8 * 1024 * 1024;
	char *bytes = calloc(1, n);
	assert_true(say(&a, bytes, n) > 0);
	free(bytes);
	stream_close_gracefully(a.s, WAIT_MS);
	spin(&loop, 5);
	peer_open(&b, &loop, fd[1]);
	/* Unread input at the closing side must not turn the end into a reset. */
	peer_say(&b, "more input");
	wait_for(&loop, &b.over);
	assert_true(b.eof);
	assert_int_equal(b.heard.len, n);
	peer_done(&b);
}

static void graceful_close_resets_nothing_though_input_is_unread(void **state)
{
	(void)state;
	int fd[2];
	make_tcp_pair(fd);
	struct watched a;
	struct peer b;
	watch(&a, fd[0]);
	stream_read(a.s, false);
	char bytes[200000] = {0}; /* more than the peer's window, less than our kernel takes */
	assert_int_equal(send(fd[1], bytes, 30000, 0), 30000);
	say(&a, bytes, sizeof(bytes));
	stream_close_gracefully(a.s, WAIT_MS);
	spin(&loop, 5);
	peer_open(&b, &loop, fd[1]);
	wait_for(&loop, &b.over);
	assert_true(b.eof);
	assert_int_equal(b.heard.len, sizeof(bytes));
	peer_done(&b);
}

static void graceful_close_gives_up_on_a_peer_that_reads_nothing(void **state)
{
	(void)state;
	int fd[2];
	make_pair(fd);
	struct watched a;
	watch(&a, fd[0]);
	size_t n = 8 * 1024 * 1024;
	char *bytes = calloc(1, n);
	assert_true(say(&a, bytes, n) > 0);
	free(bytes);
	stream_close_gracefully(a.s, 50);
	uv_run(&loop, UV_RUN_DEFAULT); /* returns once the stream is gone */
	assert_false(a.closed);
	close(fd[1]);
}

static void closing_inside_any_callback_is_the_last_of_it(void **state)
{
	(void)state;
	for (int when = DATA; when <= DRAINED; when++) {
		int fd[2];
		make_pair(fd);
		struct watched a;
		watch(&a, fd[0]);
		a.close_in = when;
		if (when == DRAINED)
			say(&a, "x", 1);
		else
			assert_int_equal(send(fd[1], "x", 1, 0), 1);
		if (when == END)
			shutdown(fd[1], SHUT_WR);
		wait_for(&loop, when == DATA ? &a.got : when == END ? &a.eof : &a.drained);
		assert_null(a.s);
		close(fd[1]);
		spin(&loop, 10);
		assert_false(a.closed);
	}
}

static void failed_write_is_told_from_the_loop(void **state)
{
	(void)state;
	int fd[2];
	make_pair(fd);
	struct watched a;
	watch(&a, fd[0]);
	stream_read(a.s, false);
	close(fd[1]);
	char large[40000] = {0};
	assert_true(say(&a, large, sizeof(large)) >= 0);
	assert_false(a.closed);
	wait_for(&loop, &a.closed);
	assert_int_equal(a.why.code, EPIPE);
}

static void last_words_come_before_the_failed_write(void **state)
{
	(void)state;
	int fd[2];
	make_tcp_pair(fd);
	struct watched a;
	watch(&a, fd[0]);
	assert_int_equal(send(fd[1], "too large", 9, 0), 9);
	close(fd[1]);
	char large[40000] = {0};
	say(&a, large, sizeof(large));
	say(&a, large, sizeof(large));
	while (a.s && !a.closed && !a.eof)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(a.bytes, 9);
	drop(&a);
}

static void reset_is_an_error(void **state)
{
	(void)state;
	int fd[2];
	make_tcp_pair(fd);
	struct watched a;
	watch(&a, fd[0]);
	struct linger now = {.l_onoff = 1};
	setsockopt(fd[1], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd[1]);
	wait_for(&loop, &a.closed);
	assert_int_equal(a.why.code, ECONNRESET);
	assert_false(a.eof);
}

struct ticker {
	uv_timer_t timer;
	int fd;
	int left;
	bool done;
};

static void tick(uv_timer_t *t)
{
	struct ticker *k = t->data;
	assert_int_equal(send(k->fd, "x", 1, 0), 1);
	if (--k->left)
		return;
	uv_timer_stop(t);
	k->done = true;
}

static void idle_stream_is_closed_and_moving_bytes_keep_it(void **state)
{
	(void)state;
	int fd[2];
	make_pair(fd);
	struct watched a;
	watch(&a, fd[0]);
	stream_set_idle_timeout(a.s, 100);
	struct ticker k = {.fd = fd[1], .left = 30};
	uv_timer_init(&loop, &k.timer);
	k.timer.data = &k;
	uv_timer_start(&k.timer, tick, 10, 10);
	wait_for(&loop, &k.done); /* after 300 ms */
	assert_false(a.closed);
	uv_close((uv_handle_t *)&k.timer, NULL);
	wait_for(&loop, &a.closed);
	assert_int_equal(a.why.code, ETIMEDOUT);
	close(fd[1]);
}

/* -- connecting -- */

static void connecting_opens_once_and_sends_what_waited(void **state)
{
	(void)state;
	struct sockaddr_in addr;
	int l = listen_tcp(&addr, 4);
	struct watched a = {0};
	a.s = stream_connect(&loop, (struct sockaddr *)&addr, sizeof(addr), 5000, &watched_ops, &a,
			     NULL);
	assert_non_null(a.s);
	assert_false(a.opened);
	assert_int_equal(say(&a, "early", 5), 5);
	wait_for(&loop, &a.drained);
	assert_true(a.opened);
	int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	char got[8];
	assert_int_equal(recv(fd, got, sizeof(got), 0), 5);
	close(fd);
	close(l);
	drop(&a);
}

static void closing_inside_opened_is_safe(void **state)
{
	(void)state;
	struct sockaddr_in addr;
	int l = listen_tcp(&addr, 4);
	struct watched a = {.close_in = OPENED};
	a.s = stream_connect(&loop, (struct sockaddr *)&addr, sizeof(addr), 5000, &watched_ops, &a,
			     NULL);
	say(&a, "early", 5);
	wait_for(&loop, &a.opened);
	spin(&loop, 5);
	assert_false(a.drained || a.closed);
	close(l);
}

static void refused_connection_says_where(void **state)
{
	(void)state;
	struct sockaddr_in addr;
	close(listen_tcp(&addr, 1));
	struct watched a = {0};
	struct err e = {0};
	a.s = stream_connect(&loop, (struct sockaddr *)&addr, sizeof(addr), 5000, &watched_ops, &a,
			     &e);
	if (a.s) {
		wait_for(&loop, &a.closed);
		e = a.why;
	}
	assert_int_equal(e.code, ECONNREFUSED);
	char want[64];
	snprintf(want, sizeof(want), "connecting to 127.0.0.1:%u: ", ntohs(addr.sin_port));
	assert_memory_equal(e.text, want, strlen(want));
	assert_false(a.opened);
}

static void missing_unix_socket_is_told_at_once(void **state)
{
	(void)state;
	struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = "/nonexistent/space.sock"};
	struct err e = {0};
	assert_null(stream_connect(&loop, (struct sockaddr *)&addr, sizeof(addr), 0, &watched_ops,
				   NULL, &e));
	assert_int_equal(e.code, ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/space.sock"));
}

static void connecting_has_a_deadline(void **state)
{
	(void)state;
	struct sockaddr_in addr;
	int l = listen_tcp(&addr, 0);
	/* The backlog holds one; the kernel then drops what else comes. */
	int filler[3];
	for (int i = 0; i < 3; i++) {
		filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		connect(filler[i], (struct sockaddr *)&addr, sizeof(addr));
	}
	struct watched a = {0};
	a.s = stream_connect(&loop, (struct sockaddr *)&addr, sizeof(addr), 80, &watched_ops, &a,
			     NULL);
	wait_for(&loop, &a.closed);
	assert_int_equal(a.why.code, ETIMEDOUT);
	assert_non_null(strstr(a.why.text, "connecting to 127.0.0.1"));
	for (int i = 0; i < 3; i++)
		close(filler[i]);
	close(l);
}

static void adopting_what_is_no_socket_closes_it(void **state)
{
	(void)state;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct err e = {0};
	assert_null(stream_adopt(&loop, fd, &watched_ops, NULL, &e));
	assert_int_equal(e.code, ENOTSOCK);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* -- listening -- */

struct lister {
	struct stream_listener *l;
	int accepted;
	bool enough;
};

static void on_accepted(void *user, int fd)
{
	struct lister *t = user;
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	if (++t->accepted == 2) {
		stream_listener_close(t->l);
		t->enough = true;
	}
}

static void listener_may_be_closed_while_it_accepts(void **state)
{
	(void)state;
	struct sockaddr_in addr;
	struct lister t = {0};
	t.l = stream_listen(&loop, listen_tcp(&addr, 8), on_accepted, &t, NULL);
	assert_non_null(t.l);
	int fd[3];
	for (int i = 0; i < 3; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&addr, sizeof(addr)), 0);
	}
	wait_for(&loop, &t.enough);
	spin(&loop, 5);
	assert_int_equal(t.accepted, 2);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(stream_carries_bytes_both_ways),
		TEST(small_writes_leave_in_one_piece),
		TEST(paused_stream_delivers_nothing_until_resumed),
		TEST(slow_reader_bounds_the_queue),
		TEST(shutdown_lets_the_other_direction_go_on),
		TEST(graceful_close_delivers_all_that_was_queued),
		TEST(graceful_close_resets_nothing_though_input_is_unread),
		TEST(graceful_close_gives_up_on_a_peer_that_reads_nothing),
		TEST(closing_inside_any_callback_is_the_last_of_it),
		TEST(failed_write_is_told_from_the_loop),
		TEST(last_words_come_before_the_failed_write),
		TEST(reset_is_an_error),
		TEST(idle_stream_is_closed_and_moving_bytes_keep_it),
		TEST(connecting_opens_once_and_sends_what_waited),
		TEST(closing_inside_opened_is_safe),
		TEST(refused_connection_says_where),
		TEST(missing_unix_socket_is_told_at_once),
		TEST(connecting_has_a_deadline),
		TEST(adopting_what_is_no_socket_closes_it),
		TEST(listener_may_be_closed_while_it_accepts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
