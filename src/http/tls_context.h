/* SPDX-License-Identifier: Apache-2.0 */
/* What tls.c and tls_context.c share. OpenSSL stays in these two. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "http/tls.h"

#define TLS_NAME_MAX 253 /* bytes of a DNS name */

struct tls_context {
	SSL_CTX *ssl;
	BIO_METHOD *wire;
	unsigned refs;
	bool server;
	int (*pick)(void *user, SSL *ssl, const char *sni);
	void *pick_user;
	struct tls_sessions *sessions; /* of a client */
};

/* What the ClientHello told; the SSL's app data on the server's side. */
struct tls_hello {
	bool seen;
	bool named; /* sni is set */
	char sni[TLS_NAME_MAX + 1];
};

struct tls_context *tls_context_get(struct tls_context *ctx); /* one more reference */

/* Copies a DNS name in lower case, without a dot at its end, to out[TLS_NAME_MAX + 1]. 0; -EINVAL
   when it is none: empty or long labels, other characters than letters, digits, '-' and '_', an
   all-numeric last label (an address). */
int tls_name_copy(const void *name, size_t n, char *out);

/* Sets e to what OpenSSL's error queue says, and empties it. peer may be NULL. Returns -errno. */
int tls_error(SSL *ssl, const char *peer, struct err *e);
