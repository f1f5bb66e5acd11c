/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer, and descriptors over sockets. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fd.h"

static void buf_never_grows_past_its_maximum(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 10);
	assert_int_equal(buf_append(&b, "12345678", 8), 0);
	assert_int_equal(buf_append(&b, "abc", 3), -EMSGSIZE);
	assert_int_equal(b.len, 8);
	assert_int_equal(buf_append(&b, "ab", 2), 0);
	assert_int_equal(buf_append(&b, "", 0), 0);
	assert_int_equal(buf_reserve(&b, SIZE_MAX), -EMSGSIZE);
	buf_consume(&b, 4);
	assert_int_equal(buf_append(&b, "wxyz", 4), 0);
	assert_memory_equal(b.data, "5678abwxyz", 10);
	buf_done(&b);
}

/* Against a plain array as the model. */
static void buf_is_a_queue_of_bytes(void **state)
{
	(void)state;
	static uint8_t model[1 << 16];
	size_t from = 0, to = 0;
	struct buf b;
	buf_init(&b, 4096);
	srand(7);
	while (to < sizeof(model) - 512) {
		size_t n = (size_t)rand() % 300;
		for (size_t i = 0; i < n; i++)
			model[to + i] = (uint8_t)rand();
		if (buf_append(&b, model + to, n) == 0)
			to += n;
		size_t m = (size_t)rand() % 320;
		if (m > b.len)
			m = b.len;
		buf_consume(&b, m);
		from += m;
		assert_int_equal(b.len, to - from);
		if (b.len)
			assert_memory_equal(b.data, model + from, b.len);
	}
	buf_done(&b);
}

/* Memory is looked at while it is the buffer's still. */
static void buf_for_secrets_holds_no_more_than_it_has(void **state)
{
	(void)state;
	struct buf b;
	buf_init_secret(&b, 4096);
	assert_int_equal(buf_append_str(&b, "first-second"), 0);
	const uint8_t *memory = b.data;
	buf_consume(&b, 6);
	assert_memory_equal(memory, "\0\0\0\0\0\0second", 12);
	buf_consume(&b, 6);
	assert_memory_equal(memory, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
	assert_int_equal(buf_append_str(&b, "third"), 0);
	buf_done(&b);
	assert_true(b.wipes && b.max == 4096 && !b.data);
}

static void buf_prints_and_yields_text(void **state)
{
	(void)state;
	struct buf b;
	buf_init(&b, 4096);
	char big[600];
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(buf_printf(&b, "%d-%s", 7, big), 0);
	char *s = buf_take_str(&b);
	assert_int_equal(strlen(s), 2 + 599);
	assert_int_equal(b.len, 0);
	free(s);
}

static void descriptors_cross_a_socket(void **state)
{
	(void)state;
	int s[2], p[2], got[2];
	char text[8];
	size_t n = 2;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(fd_send(s[0], "hi", 2, p, 2), 0);
	assert_int_equal(fd_recv(s[1], text, sizeof(text), got, &n), 2);
	assert_int_equal(n, 2);
	assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(got[1], "x", 1), 1);
	assert_int_equal(read(p[0], text, 1), 1);
	for (int i = 0; i < 2; i++) {
		close(got[i]);
		close(p[i]);
	}
	close(s[0]);
	close(s[1]);
}

static void surplus_descriptors_are_refused_and_closed(void **state)
{
	(void)state;
	int s[2], p[2], got[1];
	char text[8];
	size_t n = 1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(fd_send(s[0], "hi", 2, p, 2), 0);
	close(p[1]);
	assert_int_equal(fd_recv(s[1], text, sizeof(text), got, &n), -EMSGSIZE);
	/* No writer is left, so the pipe is at its end: every copy was closed. */
	assert_int_equal(read(p[0], text, 1), 0);
	close(p[0]);
	close(s[0]);
	close(s[1]);
}

static void files_are_replaced_whole(void **state)
{
	(void)state;
	char dir[] = "/tmp/space-test-XXXXXX", path[64];
	char *text;
	size_t n;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/f", dir);
	assert_int_equal(file_write_atomic(path, "one", 3, 0640), 0);
	assert_int_equal(file_write_atomic(path, "three", 5, 0640), 0);
	assert_int_equal(file_read(path, 100, &text, &n), 0);
	assert_int_equal(n, 5);
	assert_string_equal(text, "three");
	free(text);
	assert_int_equal(file_read(path, 4, &text, &n), -EFBIG);
	assert_int_equal(file_read("/proc/self/status", 1 << 20, &text, &n), 0);
	assert_true(n > 100);
	free(text);
	assert_int_equal(dir_remove_all(dir), 0);
}

static void removal_follows_no_link(void **state)
{
	(void)state;
	char dir[] = "/tmp/space-test-XXXXXX", other[] = "/tmp/space-test-XXXXXX", inner[80],
	     link[80], kept[80];
	assert_non_null(mkdtemp(dir));
	assert_non_null(mkdtemp(other));
	snprintf(inner, sizeof(inner), "%s/a/b", dir);
	snprintf(link, sizeof(link), "%s/a/link", dir);
	snprintf(kept, sizeof(kept), "%s/kept", other);
	assert_int_equal(dir_make_all(inner, 0700), 0);
	assert_int_equal(dir_make_all(inner, 0700), 0);
	assert_int_equal(file_write_atomic(kept, "x", 1, 0600), 0);
	assert_int_equal(symlink(other, link), 0);
	assert_int_equal(dir_remove_all(dir), 0);
	assert_int_equal(access(dir, F_OK), -1);
	assert_int_equal(access(kept, F_OK), 0);
	assert_int_equal(dir_remove_all(dir), 0);
	assert_int_equal(dir_remove_all(other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buf_never_grows_past_its_maximum),
		cmocka_unit_test(buf_is_a_queue_of_bytes),
		cmocka_unit_test(buf_for_secrets_holds_no_more_than_it_has),
		cmocka_unit_test(buf_prints_and_yields_text),
		cmocka_unit_test(descriptors_cross_a_socket),
		cmocka_unit_test(surplus_descriptors_are_refused_and_closed),
		cmocka_unit_test(files_are_replaced_whole),
		cmocka_unit_test(removal_follows_no_link),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
