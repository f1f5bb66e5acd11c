/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies are kept: OpenSSL marks the session of a connection that was cut as not to be used again.
 * TLS 1.3 tickets are used once, so that no observer can tie connections together by them (RFC
 * 8446, C.4); a server gives new ones each time.
 */
#include "http/tls_session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "http/tls_context.h"

struct entry {
	SSL_SESSION *session; /* NULL: free */
	uint64_t used;        /* the order in which they came */
	char host[TLS_NAME_MAX + 1];
};

struct tls_sessions {
	uint64_t clock;
	struct entry list[TLS_SESSIONS_MAX];
};

static struct entry *entry_of(struct tls_sessions *all, const char *host)
{
	for (size_t i = 0; i < TLS_SESSIONS_MAX; i++)
		if (all->list[i].session && str_eq(all->list[i].host, host))
			return &all->list[i];
	return NULL;
}

static struct entry *oldest(struct tls_sessions *all)
{
	struct entry *found = &all->list[0];
	for (size_t i = 0; i < TLS_SESSIONS_MAX && found->session; i++)
		if (!all->list[i].session || all->list[i].used < found->used)
			found = &all->list[i];
	return found;
}

static void entry_drop(struct entry *entry)
{
	SSL_SESSION_free(entry->session);
	entry->session = NULL;
}

/* Called by OpenSSL for each session or ticket that a server gives, once its certificate was
 * accepted. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
	struct tls_sessions *all = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	const char *host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	if (!host || SSL_get_verify_result(ssl) != X509_V_OK || !SSL_SESSION_is_resumable(session))
		return 0;
	struct entry *entry = entry_of(all, host);
	if (!entry)
		entry = oldest(all);
	entry_drop(entry);
	entry->session = SSL_SESSION_dup(session);
	entry->used = ++all->clock;
	strncpy(entry->host, host, TLS_NAME_MAX);
	return 0;
}

struct tls_sessions *tls_sessions_new(SSL_CTX *ssl)
{
	struct tls_sessions *all = calloc(1, sizeof(*all));
	if (!all)
		return NULL;
	SSL_CTX_set_app_data(ssl, all);
	SSL_CTX_clear_options(ssl, SSL_OP_NO_TICKET);
	SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(ssl, on_session);
	return all;
}

void tls_sessions_free(struct tls_sessions *all)
{
	if (!all)
		return;
	for (size_t i = 0; i < TLS_SESSIONS_MAX; i++)
		entry_drop(&all->list[i]);
	free(all);
}

void tls_sessions_offer(struct tls_sessions *all, SSL *ssl, const char *host)
{
	struct entry *entry = entry_of(all, host);
	if (!entry)
		return;
	long age = (long)time(NULL) - SSL_SESSION_get_time(entry->session);
	if (age < 0 || age >= TLS_SESSION_LIFE_S) {
		entry_drop(entry);
		return;
	}
	SSL_SESSION *copy = SSL_SESSION_dup(entry->session);
	if (copy)
		SSL_set_session(ssl, copy);
	SSL_SESSION_free(copy);
	if (SSL_SESSION_get_protocol_version(entry->session) >= TLS1_3_VERSION)
		entry_drop(entry);
}
