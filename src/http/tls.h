/* SPDX-License-Identifier: Apache-2.0 */
/* TLS contexts for streams. TLS 1.2 and 1.3, no renegotiation, no compression, no early data. */
#pragma once

#include <stdbool.h>

#include <openssl/types.h>

#include "base/err.h"

struct tls_context;

/* A client context that trusts the system's store and, when not NULL, also the PEM certificates
   given (trust_pem_only: those alone), names in the SAN alone, no partial wildcards. alpn http/1.1.
 */
struct tls_context *tls_client_new(const char *trust_pem, bool trust_pem_only, struct err *e);

/* A client context that trusts whom another one trusts, and shows this certificate (PEM: the leaf,
   then its chain) to servers that ask for one. Sessions are its own. -EINVAL in e: no certificate,
   no key (an encrypted one is none), or they don't belong together. */
struct tls_context *tls_client_certified(const struct tls_context *trust, const char *chain_pem,
					 const char *key_pem, struct err *e);

/*
 * A server context. pick is called during the handshake with the SNI (lower case, valid per DNS
 * rules; NULL when none) and calls SSL_use_certificate() and the like on ssl. 0: go on; negative:
 * refuse with a fatal unrecognized_name alert. It must not close the stream, and leaves the app
 * data of ssl alone. A malformed SNI, one that is an address, a ClientHello past 16 KiB and an ALPN
 * list with neither h2 nor http/1.1 are refused before or after it.
 */
struct tls_context *tls_server_new(int (*pick)(void *user, SSL *ssl, const char *sni), void *user,
				   struct err *e);

/* NULL is fine; streams in use hold their own reference. */
void tls_context_free(struct tls_context *ctx);
