/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent reads besides HTTP: the messages of its calls, /init, user files, time stamps,
 * paths. The first byte chooses the reader. SendInput's two ways to read must agree.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "agent/input_message.h"
#include "agent/path.h"
#include "agent/selector.h"
#include "agent/settings.h"
#include "agent/start_request.h"
#include "agent/text.h"
#include "agent/user.h"
#include "base/cleanup.h"
#include "base/clock.h"

static void settings(const char *text, size_t n)
{
	struct settings s = {0};
	struct settings_request req;
	struct err e = {0};
	if (settings_read(text, n, &req, &e) < 0) {
		if (!e.code)
			abort();
		return;
	}
	settings_take(&s, &req);
	settings_request_done(&req);
	settings_done(&s);
}

static void start(const char *text, size_t n)
{
	struct start_request req;
	struct settings none = {0};
	struct err e = {0};
	char root[] = "root", home[] = "/root";
	struct user user = {.name = root, .home = home, .shell = home};
	if (start_request_read(text, n, &req, &e) < 0) {
		if (!e.code)
			abort();
		return;
	}
	auto_env struct env env = {0};
	auto_free char *cwd = NULL;
	start_environment(&req, &none, &user, &env, &e);
	if (start_directory(&req, &none, &user, &cwd, &e) == 0 && cwd[0] != '/')
		abort();
	start_request_done(&req);
}

/* SendInput's message, as the calls that only name a process read it. */
static void selector(const char *text, size_t n)
{
	struct selector s;
	struct err e = {0};
	auto_json json_t *message = doc_parse_json(text, n, &e);
	if (message && selector_read(message, &s, &e) == 0 && !s.tag && s.pid < 1)
		abort();
}

/* White space in front makes a body long enough for the short way. */
static void input(const char *text, size_t n)
{
	enum { PAD = 1024 };
	auto_free char *padded = malloc(PAD + n);
	memset(padded, ' ', PAD);
	memcpy(padded + PAD, text, n);
	struct input_message a = {0}, b = {0};
	struct err e = {0};
	int r = n < PAD ? input_message_read(text, n, &a, &e) : -1;
	int s = n < PAD ? input_message_read(padded, PAD + n, &b, &e) : -1;
	if (r != s || a.kind != b.kind || a.len != b.len ||
	    (a.len && memcmp(a.data, b.data, a.len)))
		abort();
	if (r == 0) {
		input_message_done(&a);
		input_message_done(&b);
	}
}

static void users(const char *text)
{
	static const char *const names[] = {"root", "user", "1000", "a"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		auto_user struct user u = {0};
		if (user_find(text, text, names[i], &u) == 0 &&
		    (u.home[0] != '/' || u.shell[0] != '/' || !u.group_count))
			abort();
	}
}

static void texts(const char *text)
{
	auto_free char *path = NULL, *user = NULL;
	auto_json json_t *json = text_to_json(text);
	int64_t ns;
	clock_from_rfc3339(text, &ns);
	text_basic_user(text, &user);
	if (!json)
		abort();
	if (path_resolve(text, "/home/user", NULL, &path, NULL) < 0)
		return;
	if (path[0] != '/' || strlen(path) >= PATH_MAX || strstr(path, "//") ||
	    strstr(path, "/./") || strstr(path, "/../"))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n < 1)
		return 0;
	auto_free char *text = strndup((const char *)data + 1, n - 1);
	switch (data[0] % 5) {
	case 0:
		settings((const char *)data + 1, n - 1);
		break;
	case 1:
		start((const char *)data + 1, n - 1);
		break;
	case 2:
		input((const char *)data + 1, n - 1);
		selector((const char *)data + 1, n - 1);
		break;
	case 3:
		users(text);
		break;
	default:
		texts(text);
	}
	return 0;
}
