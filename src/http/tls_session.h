/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions that a client's context has had, for the next connection to the same name: the server's
 * certificate was checked against this context's trust when each began. No early data is ever sent
 * with one.
 */
#pragma once

#include <openssl/ssl.h>

#define TLS_SESSIONS_MAX 64 /* names; the longest unused goes */
#define TLS_SESSION_LIFE_S \
	3600 /* after which a certificate is looked at anew, whatever the ticket says */

struct tls_sessions;

struct tls_sessions *tls_sessions_new(SSL_CTX *ssl); /* has ssl keep them. NULL: no memory */
void tls_sessions_free(struct tls_sessions *all);    /* NULL is fine; after the SSL_CTX */

/* Offers the session there is for this name, if any. */
void tls_sessions_offer(struct tls_sessions *all, SSL *ssl, const char *host);
