/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/token_call.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ssl.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define CONNECT_MS 10000

/* libcurl's copies of what we give it are wiped as well. */
static void wiping_free(void *p)
{
	if (!p)
		return;
	explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

static void *wiping_realloc(void *p, size_t n)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *q = malloc(n);
	if (q && p) {
		memcpy(q, p, had < n ? had : n);
		wiping_free(p);
	}
	return q;
}

static CURLcode started = CURLE_FAILED_INIT;

static void start(void)
{
	started = curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc,
				       strdup, calloc);
}

static bool ready(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start);
	return started == CURLE_OK;
}

static bool is_this_host(const char *host)
{
	struct in_addr a;
	if (str_eq(host, "localhost") || str_eq(host, "[::1]"))
		return true;
	return inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127;
}

/* Part of a URL as libcurl takes it, for curl_free(); NULL: there is none. */
static char *part(CURLU *u, CURLUPart what)
{
	char *text = NULL;
	return curl_url_get(u, what, &text, 0) == CURLUE_OK ? text : NULL;
}

static int check_parts(CURLU *u, struct err *e)
{
	char *scheme = part(u, CURLUPART_SCHEME), *host = part(u, CURLUPART_HOST);
	char *user = part(u, CURLUPART_USER), *password = part(u, CURLUPART_PASSWORD);
	char *fragment = part(u, CURLUPART_FRAGMENT);
	int r = 0;
	if (user || password || fragment)
		r = err_set(e, EINVAL, "has a user or a fragment in it");
	else if (!host ||
		 !(str_eq(scheme, "https") || (str_eq(scheme, "http") && is_this_host(host))))
		r = err_set(e, EINVAL, "must begin with https:// (http:// is for this host alone)");
	curl_free(scheme);
	curl_free(host);
	curl_free(user);
	curl_free(password);
	curl_free(fragment);
	return r;
}

int token_url_check(const char *url, struct err *e)
{
	if (!ready())
		return err_set(e, EIO, "libcurl can't be used");
	if (strlen(url) > TOKEN_URL_MAX)
		return err_set(e, EINVAL, "is longer than %d bytes", TOKEN_URL_MAX);
	for (const char *p = url; *p; p++)
		if (*p <= 0x20 || *p == 0x7f)
			return err_set(e, EINVAL, "is no URL");
	CURLU *u = curl_url();
	if (!u)
		return err_set(e, ENOMEM, "no memory");
	int r = curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK
			? check_parts(u, e)
			: err_set(e, EINVAL, "is no URL");
	curl_url_cleanup(u);
	return r;
}

void token_answer_done(struct token_answer *a)
{
	if (a->body)
		explicit_bzero(a->body, TOKEN_BODY_MAX + 1);
	free(a->body);
	*a = (struct token_answer){0};
}

/* libcurl's callback: less than was given ends the transfer. */
static size_t on_body(char *p, size_t size, size_t n, void *user)
{
	struct token_answer *a = user;
	n *= size;
	if (n > TOKEN_BODY_MAX - a->len)
		return 0;
	memcpy(a->body + a->len, p, n);
	a->len += n;
	return n;
}

/* What OpenSSL has read is wiped when it is handed on. */
static CURLcode on_ssl(CURL *h, void *ctx, void *user)
{
	(void)h, (void)user;
	SSL_CTX_set_options(ctx, SSL_OP_CLEANSE_PLAINTEXT);
	return CURLE_OK;
}

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
	char *text = str_printf("%s: %s", name, value);
	struct curl_slist *more = text ? curl_slist_append(*list, text) : NULL;
	wiping_free(text);
	if (more)
		*list = more;
	return more;
}

static bool set_headers(CURL *h, const struct token_call *c, struct curl_slist **list)
{
	auto_free char *bearer = c->bearer ? str_printf("Bearer %s", c->bearer) : NULL;
	bool ok = add_header(list, "Accept", c->accept ? c->accept : "application/json") &&
		  (!c->bearer || (bearer && add_header(list, "Authorization", bearer)));
	if (bearer)
		explicit_bzero(bearer, strlen(bearer));
	return ok && curl_easy_setopt(h, CURLOPT_HTTPHEADER, *list) == CURLE_OK;
}

/* A proxy of our environment is for the world outside. */
static bool set_proxy(CURL *h, const char *url)
{
	CURLU *u = curl_url();
	bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK;
	char *host = ok ? part(u, CURLUPART_HOST) : NULL;
	if (ok && host && is_this_host(host))
		ok = curl_easy_setopt(h, CURLOPT_NOPROXY, "*") == CURLE_OK;
	curl_free(host);
	curl_url_cleanup(u);
	return ok;
}

static bool set_trust(CURL *h, const char *ca)
{
	struct curl_blob blob = {
		.data = (void *)(uintptr_t)ca, .len = ca ? strlen(ca) : 0, .flags = CURL_BLOB_COPY};
	return curl_easy_setopt(h, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_SSL_CTX_FUNCTION, on_ssl) == CURLE_OK &&
	       (!ca || (curl_easy_setopt(h, CURLOPT_CAPATH, NULL) == CURLE_OK &&
			curl_easy_setopt(h, CURLOPT_CAINFO_BLOB, &blob) == CURLE_OK));
}

static bool set_up(CURL *h, const struct token_call *c, struct token_answer *a, char *why)
{
	const char *form = c->form ? c->form : "";
	curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
	curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)TOKEN_CALL_MS);
	curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(h, CURLOPT_POST, 1L);
	curl_easy_setopt(h, CURLOPT_POSTFIELDS, form);
	curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE, (long)strlen(form));
	if (c->user && (curl_easy_setopt(h, CURLOPT_HTTPAUTH, CURLAUTH_BASIC) != CURLE_OK ||
			curl_easy_setopt(h, CURLOPT_USERNAME, c->user) != CURLE_OK ||
			curl_easy_setopt(h, CURLOPT_PASSWORD, c->password) != CURLE_OK))
		return false;
	return curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "https,http") == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_USERAGENT, "space/" SPACE_VERSION) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_URL, c->url) == CURLE_OK && set_proxy(h, c->url) &&
	       set_trust(h, c->ca);
}

/* Runs to the end, or until stop_fd is readable: 0 with *ret set, or -ECANCELED, -EIO. */
static int transfer(CURL *h, int stop_fd, CURLcode *ret)
{
	CURLM *m = curl_multi_init();
	if (!m || curl_multi_add_handle(m, h) != CURLM_OK) {
		curl_multi_cleanup(m);
		return -EIO;
	}
	struct curl_waitfd stop = {.fd = stop_fd, .events = CURL_WAIT_POLLIN};
	int left = 1, r = 0;
	while (r == 0 && left) {
		if (curl_multi_perform(m, &left) != CURLM_OK ||
		    (left && curl_multi_poll(m, &stop, stop_fd >= 0, 1000, NULL) != CURLM_OK))
			r = -EIO;
		else if (left && stop.revents)
			r = -ECANCELED;
	}
	CURLMsg *said = r == 0 ? curl_multi_info_read(m, &left) : NULL;
	if (said)
		*ret = said->data.result;
	curl_multi_remove_handle(m, h);
	curl_multi_cleanup(m);
	return r == 0 && !said ? -EIO : r;
}

static int64_t skew_of(CURL *h)
{
	struct curl_header *date;
	if (curl_easy_header(h, "Date", 0, CURLH_HEADER, -1, &date) != CURLHE_OK)
		return 0;
	time_t theirs = curl_getdate(date->value, NULL);
	int64_t skew = theirs < 0 ? 0 : (int64_t)theirs - (int64_t)(clock_wall_ms() / 1000);
	return skew >= -2 && skew <= 2 ? 0 : skew; /* whole seconds, and the way here */
}

/* libcurl's words may quote a peer's; only plain ones are passed on. */
static void make_plain(char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}

static int perform(CURL *h, const struct token_call *c, struct token_answer *a, struct err *e)
{
	char why[CURL_ERROR_SIZE] = "";
	struct curl_slist *headers = NULL;
	CURLcode code = CURLE_OUT_OF_MEMORY;
	int r = 0;
	if (set_up(h, c, a, why) && set_headers(h, c, &headers))
		r = transfer(h, c->stop_fd, &code);
	curl_slist_free_all(headers);
	make_plain(why);
	if (r == -ECANCELED)
		return err_set(e, ECANCELED, "%s: stopped", c->url);
	if (r < 0)
		return err_set(e, EIO, "%s: libcurl failed", c->url);
	if (code == CURLE_WRITE_ERROR)
		return err_set(e, EIO, "%s answers with more than %d bytes", c->url,
			       TOKEN_BODY_MAX);
	if (code != CURLE_OK)
		return err_set(e, EIO, "%s: %s", c->url, *why ? why : curl_easy_strerror(code));
	long status = 0;
	curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
	a->status = (unsigned)status;
	a->skew_s = skew_of(h);
	a->body[a->len] = '\0';
	return 0;
}

int token_call(const struct token_call *c, struct token_answer *ret, struct err *e)
{
	struct token_answer a = {.body = malloc(TOKEN_BODY_MAX + 1)};
	CURL *h = ready() && a.body ? curl_easy_init() : NULL;
	if (!h) {
		free(a.body);
		return err_set(e, EIO, "libcurl can't be used");
	}
	int r = perform(h, c, &a, e);
	curl_easy_cleanup(h);
	if (r < 0)
		token_answer_done(&a);
	else
		*ret = a;
	return r;
}
