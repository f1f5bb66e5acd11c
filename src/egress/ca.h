/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox's certificate authority: leaf certificates made when first needed, kept while used.
 */
#pragma once

#include <stdbool.h>

#include <openssl/types.h>

#include "base/err.h"
#include "http/tls.h"

#define CA_LEAVES_MAX       256          /* kept at once, the least used go first */
#define CA_LEAF_SECONDS     (7 * 86400L) /* validity, cut where the authority's own ends */
#define CA_NAME_SIZE        256          /* bytes of a name with its NUL */
#define CA_BACKDATE_SECONDS 86400L

struct ca;
struct ca_leaf; /* what one host is answered with */

/* An authority that is none yet, with what takes long and depends on no sandbox. NULL with e set.
 */
struct ca *ca_new(struct err *e);

/* Makes it one, once: from the PEM of the sandbox's intermediate (others after it are sent along)
 * and its key. 0 or -errno. */
int ca_load(struct ca *ca, const char *certificates_pem, const char *key_pem, struct err *e);

void ca_free(struct ca *ca); /* NULL is fine; leaves in use live on */

/* The leaf of a canonical host, or of an address by its text; put it back with ca_leaf_put(). NULL
 * with e set. */
struct ca_leaf *ca_leaf_get(struct ca *ca, const char *host, struct err *e);
void ca_leaf_put(struct ca_leaf *leaf); /* NULL is fine */

/* A server context that shows this leaf, and refuses a handshake whose SNI is another name. Hold
   the leaf during the handshake. Borrowed. */
struct tls_context *ca_leaf_tls(struct ca_leaf *leaf);

/* Whether a handshake was refused since the last call, and the name that it asked for. */
bool ca_leaf_refused(struct ca_leaf *leaf, char ret_sni[CA_NAME_SIZE]);

/* The certificate, borrowed; for tests. */
const X509 *ca_leaf_certificate(const struct ca_leaf *leaf);
