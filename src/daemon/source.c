/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "daemon/oauth.h"
#include "daemon/source_command.h"

#define LIFE_MAX_S (10.0 * 365 * 24 * 3600) /* longer is no life of a credential */

void source_value_done(struct source_value *v)
{
	json_decref(v->value);
	json_decref(v->rotated);
	*v = (struct source_value){0};
}

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "no memory");
}

/* -- what is printed, or is in a file -- */

/* A time stamp, or seconds since 1970. 0 or -EINVAL. */
static int read_time(const json_t *j, uint64_t *ret_ms)
{
	int64_t ns;
	if (json_is_string(j)) {
		if (clock_from_rfc3339(json_string_value(j), &ns) < 0)
			return -EINVAL;
		*ret_ms = (uint64_t)(ns / 1000000);
		return 0;
	}
	double s = json_number_value(j);
	if (!json_is_number(j) || !(s > 0) || s > 253402300799.0) /* the year 9999 */
		return -EINVAL;
	*ret_ms = (uint64_t)(s * 1000);
	return 0;
}

int source_life(const json_t *j, uint64_t now_ms, uint64_t *ret_ms)
{
	uint64_t whole;
	double s = json_number_value(j);
	if (json_is_string(j)) { /* some servers do */
		if (str_to_u64(json_string_value(j), 0, (uint64_t)LIFE_MAX_S, &whole) < 0)
			return -EINVAL;
		s = (double)whole;
	} else if (!json_is_number(j)) {
		return -EINVAL;
	}
	if (!(s >= 0) || s > LIFE_MAX_S)
		return -EINVAL;
	*ret_ms = now_ms + (uint64_t)(s * 1000);
	return 0;
}

static int read_expiry(const json_t *j, uint64_t now_ms, uint64_t *ret_ms, struct err *e)
{
	static const char *const members[] = {"expires", "expiration", "Expiration", "expires_in"};
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		const json_t *said = json_object_get(j, members[i]);
		if (!said || json_is_null(said))
			continue;
		int r = i == 3 ? source_life(said, now_ms, ret_ms) : read_time(said, ret_ms);
		if (r < 0)
			return err_set(e, EINVAL, "its member %s is no time", members[i]);
		return source_expired(*ret_ms, now_ms, e);
	}
	return 0;
}

int source_expired(uint64_t expires_ms, uint64_t now_ms, struct err *e)
{
	char text[CLOCK_RFC3339_SIZE];
	if (expires_ms > now_ms)
		return 0;
	clock_rfc3339(expires_ms, text);
	return err_set(e, EAGAIN, "it gave a value that expired at %s: is this host's clock right?",
		       text);
}

/* A member that must be text. */
static json_t *text_member(const json_t *j, const char *name)
{
	json_t *value = json_object_get(j, name);
	return json_is_string(value) && json_string_length(value) ? value : NULL;
}

/* AWS's form, or that of `space secret set`. */
static int read_aws(const json_t *j, json_t **ret, struct err *e)
{
	bool process = json_object_get(j, "Version");
	json_t *id = text_member(j, process ? "AccessKeyId" : "accessKeyId");
	json_t *key = text_member(j, process ? "SecretAccessKey" : "secretAccessKey");
	json_t *session = text_member(j, process ? "SessionToken" : "sessionToken");
	if (process && json_integer_value(json_object_get(j, "Version")) != 1)
		return err_set(e, EINVAL, "its Version is not 1");
	if (!id || !key)
		return err_set(e, EINVAL, "it gives no AccessKeyId and SecretAccessKey");
	*ret = json_pack("{s:O, s:O, s:O*}", "accessKeyId", id, "secretAccessKey", key,
			 "sessionToken", session);
	return *ret ? 0 : no_memory(e);
}

/* "user:password" where no recipe says the user. */
static json_t *with_user(const json_t *user, const json_t *password)
{
	size_t n = json_string_length(user), m = json_string_length(password);
	char *both = malloc(n + 1 + m);
	if (!both)
		return NULL;
	memcpy(both, json_string_value(user), n);
	both[n] = ':';
	memcpy(both + n + 1, json_string_value(password), m);
	json_t *j = json_stringn(both, n + 1 + m);
	explicit_bzero(both, n + 1 + m);
	free(both);
	return j;
}

static int read_token(const struct definition *d, const json_t *j, json_t **ret, struct err *e)
{
	static const char *const members[] = {"value", "token", "password"};
	json_t *found = NULL, *user = text_member(j, "username");
	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		json_t *value = json_object_get(j, members[i]);
		if (!value || json_is_null(value))
			continue;
		if (found)
			return err_set(e, EINVAL, "it gives two of value, token and password");
		found = value;
		if (!json_is_string(value))
			return err_set(e, EINVAL, "its member %s is no string", members[i]);
	}
	if (!found)
		return err_set(e, EINVAL, "it gives neither value, token nor password");
	const json_t *inject = json_object_get(d->entry, "inject");
	bool both =
		user && str_eq(definition_inject(d), "basic") && !json_object_get(inject, "user");
	*ret = both ? with_user(user, found) : json_incref(found);
	return *ret ? 0 : no_memory(e);
}

/* The parser's own words would quote what it read. */
static json_t *parse_object(const char *text, size_t len, struct err *e)
{
	json_t *j = doc_parse_json(text, len, NULL);
	if (json_is_object(j))
		return j;
	json_decref(j);
	err_set(e, EINVAL, "what it gives is no JSON object");
	return NULL;
}

static int read_printed(const struct definition *d, const char *text, size_t len,
			struct source_value *ret, struct err *e)
{
	auto_json json_t *j = parse_object(text, len, e);
	if (!j)
		return -EINVAL;
	int r = read_expiry(j, clock_wall_ms(), &ret->expires_ms, e);
	if (r < 0)
		return r;
	return str_eq(definition_inject(d), "sigv4") ? read_aws(j, &ret->value, e)
						     : read_token(d, j, &ret->value, e);
}

/* The blocks of a PEM text whose label ends so, one after the other: a heap string. */
static char *pem_blocks(const char *text, const char *label_end)
{
	static const char begin[] = "-----BEGIN ", end[] = "-----END ", dashes[] = "-----";
	size_t n = 0;
	char *out =
		malloc(2 * strlen(text) + 1); /* a block is longer than the line's end behind it */
	if (!out)
		return NULL;
	for (const char *p = text; (p = strstr(p, begin));) {
		const char *label = p + strlen(begin), *stop = strstr(label, dashes);
		const char *last = strstr(label, end);
		const char *done = last ? strstr(last + strlen(end), dashes) : NULL;
		if (!stop || !done)
			break;
		done += strlen(dashes);
		size_t len = (size_t)(stop - label), want = strlen(label_end);
		if (len >= want && memcmp(stop - want, label_end, want) == 0) {
			memcpy(out + n, p, (size_t)(done - p));
			n += (size_t)(done - p);
			out[n++] =
				'\n'; /* in the place of a byte of "-----BEGIN ", or of the NUL */
		}
		p = done;
	}
	out[n] = '\0';
	return out;
}

static int read_pem(const char *text, json_t **ret, struct err *e)
{
	char *chain = pem_blocks(text, "CERTIFICATE"), *key = pem_blocks(text, "PRIVATE KEY");
	int r = 0;
	if (!chain || !key)
		r = no_memory(e);
	else if (!*chain || !*key)
		r = err_set(e, EINVAL, "it holds no %s in PEM form",
			    *chain ? "private key" : "certificate");
	else if (!(*ret = json_pack("{s:s, s:s}", "certificate", chain, "key", key)))
		r = no_memory(e);
	if (key)
		explicit_bzero(key, strlen(key));
	free(key);
	free(chain);
	return r;
}

/* A file, but for its last line's end. */
static int read_text(const char *text, size_t len, json_t **ret, struct err *e)
{
	if (len && text[len - 1] == '\n')
		len -= len > 1 && text[len - 2] == '\r' ? 2 : 1;
	if (!str_is_utf8(text, len))
		return err_set(e, EINVAL, "it is no text");
	*ret = json_stringn(text, len);
	return *ret ? 0 : no_memory(e);
}

static int read_contents(const struct definition *d, const char *text, size_t len,
			 struct source_value *ret, struct err *e)
{
	if (str_eq(definition_inject(d), "certificate"))
		return strlen(text) == len ? read_pem(text, &ret->value, e)
					   : err_set(e, EINVAL, "it is no text");
	if (str_eq(definition_inject(d), "sigv4"))
		return read_printed(d, text, len, ret, e);
	return read_text(text, len, &ret->value, e);
}

/* -- sources -- */

/* Nothing but a file is read: who reads a pipe waits for its writer. */
static int read_file(const struct definition *d, const char *path, struct source_value *ret,
		     struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "can't read %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "%s is no file", path);
	char *text = malloc(SOURCE_TEXT_MAX + 2);
	if (!text)
		return no_memory(e);
	ssize_t n = fd_read_all(fd, text, SOURCE_TEXT_MAX + 1);
	int r;
	if (n < 0) {
		r = err_sys(e, (int)-n, "can't read %s", path);
	} else if (n > SOURCE_TEXT_MAX) {
		r = err_set(e, EFBIG, "%s has more than %d bytes", path, SOURCE_TEXT_MAX);
	} else {
		text[n] = '\0';
		r = read_contents(d, text, (size_t)n, ret, e);
		if (r < 0)
			err_prefix(e, "%s", path);
	}
	explicit_bzero(text, SOURCE_TEXT_MAX + 2);
	free(text);
	return r;
}

static int read_systemd(const struct definition *d, struct source_value *ret, struct err *e)
{
	const char *name = json_string_value(json_object_get(d->source, "systemd"));
	const char *dir = secure_getenv("CREDENTIALS_DIRECTORY");
	if (!dir || *dir != '/')
		return err_set(e, ENOENT,
			       "spaced was started without credentials: LoadCredential=%s in its "
			       "unit gives it this one",
			       name);
	auto_free char *path = str_printf("%s/%s", dir, name);
	return path ? read_file(d, path, ret, e) : no_memory(e);
}

static int read_command(const struct definition *d, int stop_fd, struct source_value *ret,
			struct err *e)
{
	const json_t *list = json_object_get(d->source, "command");
	json_int_t timeout = json_integer_value(json_object_get(d->source, "timeoutSeconds"));
	size_t count = json_array_size(list), len;
	const char **argv = calloc(count + 1, sizeof(*argv));
	char *text = NULL;
	if (!argv)
		return no_memory(e);
	for (size_t i = 0; i < count; i++)
		argv[i] = json_string_value(json_array_get(list, i));
	int r = command_output(argv, (uint64_t)timeout * 1000, stop_fd, SOURCE_TEXT_MAX, &text,
			       &len, e);
	if (r == 0) {
		r = read_printed(d, text, len, ret, e);
		if (r < 0)
			err_prefix(e, "%s", argv[0]);
		explicit_bzero(text, SOURCE_TEXT_MAX + 1);
	}
	free(text);
	free(argv);
	return r;
}

/* What was given is in one member, or it is several together. */
static int read_given(const struct definition *d, const json_t *values, struct source_value *ret,
		      struct err *e)
{
	const char *inject = definition_inject(d);
	bool several = str_eq(inject, "sigv4") || str_eq(inject, "certificate");
	ret->value =
		several ? json_deep_copy(values) : json_incref(json_object_get(values, "value"));
	return ret->value ? 0 : err_set(e, EACCES, "no value is stored: set it anew");
}

static int read_any(const struct definition *d, const json_t *values, int stop_fd,
		    struct source_value *ret, struct err *e)
{
	switch (d->kind) {
	case SOURCE_FILE:
		return read_file(d, json_string_value(json_object_get(d->source, "file")), ret, e);
	case SOURCE_SYSTEMD:
		return read_systemd(d, ret, e);
	case SOURCE_COMMAND:
		return read_command(d, stop_fd, ret, e);
	case SOURCE_VALUE:
		return read_given(d, values, ret, e);
	case SOURCE_OAUTH2:
		return oauth_fetch(json_object_get(d->source, "oauth2"), values, stop_fd, ret, e);
	case SOURCE_ENV:
	case SOURCE_STORED:
		break;
	}
	return err_set(e, EACCES, "%s is no source that spaced asks", definition_source(d));
}

int source_read(const struct definition *d, const json_t *values, int stop_fd,
		struct source_value *ret, struct err *e)
{
	struct source_value v = {0};
	int r = read_any(d, values, stop_fd, &v, e);
	if (r < 0) {
		json_decref(v.value);
		v = (struct source_value){.rotated = v.rotated};
	}
	*ret = v;
	return r;
}

/* -- threads -- */

struct source_threads {
	uv_async_t ended; /* first, for it is what is freed with its handle */
	uv_mutex_t lock;  /* of over */
	struct list waiting, running;
	struct list over; /* threads that are at their end */
	unsigned count;   /* running, those at their end among them */
};

struct source_fetch {
	struct list link; /* in waiting or running */
	struct list over; /* in over */
	struct source_threads *threads;
	struct definition d; /* copies: nothing is shared with the loop's thread */
	json_t *values;
	source_done done; /* NULL: nobody waits */
	void *user;
	uv_thread_t thread;
	int stop_fd;
	struct source_value value;
	struct err why;
};

static void fetch_free(struct source_fetch *f)
{
	list_remove(&f->link);
	source_value_done(&f->value);
	definition_done(&f->d);
	json_decref(f->values);
	cleanup_fd(&f->stop_fd);
	free(f);
}

static void run_fetch(void *arg)
{
	struct source_fetch *f = arg;
	struct source_threads *t = f->threads;
	f->why.code = 0;
	source_read(&f->d, f->values, f->stop_fd, &f->value, &f->why);
	uv_mutex_lock(&t->lock);
	list_append(&t->over, &f->over);
	uv_mutex_unlock(&t->lock);
	uv_async_send(&t->ended);
}

static void tell(struct source_fetch *f)
{
	if (f->done)
		f->done(f->user, &f->value, f->why.code ? &f->why : NULL);
	fetch_free(f);
}

static void start_waiting(struct source_threads *t)
{
	while (t->count < SOURCE_THREADS && !list_empty(&t->waiting)) {
		struct source_fetch *f = list_entry(t->waiting.next, struct source_fetch, link);
		list_remove(&f->link);
		list_append(&t->running, &f->link);
		int r = uv_thread_create(&f->thread, run_fetch, f);
		if (r < 0) {
			err_sys(&f->why, -r, "can't start a thread");
			tell(f);
		} else {
			t->count++;
		}
	}
}

/* Those that are at their end, one after the other, for done() may do anything. */
static void take_over(struct source_threads *t)
{
	for (;;) {
		uv_mutex_lock(&t->lock);
		struct list *first = list_empty(&t->over) ? NULL : t->over.next;
		if (first)
			list_remove(first);
		uv_mutex_unlock(&t->lock);
		if (!first)
			return;
		struct source_fetch *f = list_entry(first, struct source_fetch, over);
		uv_thread_join(&f->thread);
		t->count--;
		tell(f);
	}
}

/* The loop is kept while there is something to wait for. */
static void keep_loop(struct source_threads *t)
{
	if (list_empty(&t->waiting) && list_empty(&t->running))
		uv_unref((uv_handle_t *)&t->ended);
	else
		uv_ref((uv_handle_t *)&t->ended);
}

static void on_ended(uv_async_t *a)
{
	struct source_threads *t = a->data;
	take_over(t);
	start_waiting(t);
	keep_loop(t);
}

struct source_threads *source_threads_new(uv_loop_t *loop, struct err *e)
{
	struct source_threads *t = calloc(1, sizeof(*t));
	int r = t ? uv_mutex_init(&t->lock) : UV_ENOMEM;
	if (r == 0) {
		r = uv_async_init(loop, &t->ended, on_ended);
		if (r < 0)
			uv_mutex_destroy(&t->lock);
	}
	if (r < 0) {
		free(t);
		err_sys(e, -r, "can't prepare the threads that ask for credentials");
		return NULL;
	}
	t->ended.data = t;
	list_init(&t->waiting);
	list_init(&t->running);
	list_init(&t->over);
	keep_loop(t);
	return t;
}

struct source_fetch *source_start(struct source_threads *t, const struct definition *d,
				  json_t *values, source_done done, void *user)
{
	struct source_fetch *f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	list_init(&f->link);
	list_init(&f->over);
	f->threads = t;
	f->done = done;
	f->user = user;
	f->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->d = (struct definition){.kind = d->kind,
				   .entry = json_deep_copy(d->entry),
				   .source = json_deep_copy(d->source)};
	f->values = json_deep_copy(values);
	if (f->stop_fd < 0 || !f->d.entry || !f->d.source || !f->values) {
		fetch_free(f);
		return NULL;
	}
	list_append(&t->waiting, &f->link);
	keep_loop(t);
	uv_async_send(&t->ended); /* started from the loop: done() is never called from here */
	return f;
}

void source_stop(struct source_fetch *f)
{
	f->done = NULL;
	eventfd_write(f->stop_fd, 1);
}

static void on_closed(uv_handle_t *h)
{
	free(h);
}

static bool must_be_kept(const struct source_fetch *f)
{
	return f->done && f->d.kind == SOURCE_OAUTH2 &&
	       oauth_rotates(json_object_get(f->d.source, "oauth2"));
}

void source_threads_free(struct source_threads *t)
{
	if (!t)
		return;
	list_for_each (it, &t->running) {
		struct source_fetch *f = list_entry(it, struct source_fetch, link);
		if (!must_be_kept(f))
			source_stop(f);
	}
	while (!list_empty(&t->running)) {
		struct source_fetch *f = list_entry(t->running.next, struct source_fetch, link);
		uv_thread_join(&f->thread);
		list_remove(&f->over); /* no other thread writes there now, or it is waited for */
		tell(f);
	}
	while (!list_empty(&t->waiting))
		fetch_free(list_entry(t->waiting.next, struct source_fetch, link));
	uv_mutex_destroy(&t->lock);
	uv_close((uv_handle_t *)&t->ended, on_closed);
}
