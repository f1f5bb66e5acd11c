/* SPDX-License-Identifier: Apache-2.0 */
/* ClientHellos of a hostile guest: what is read does not depend on how the bytes are cut, and a
 * name that is read is a canonical one. The first byte says how large the pieces are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "egress/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static int read_pieces(const uint8_t *p, size_t n, size_t piece, struct hello *ret)
{
	struct hello_reader r;
	struct err why = {0};
	int state = -EAGAIN;
	hello_init(&r);
	while (n && state == -EAGAIN) {
		size_t part = piece && piece < n ? piece : n;
		uint8_t *exact = malloc(part); /* so that a read past its end is seen */
		require(exact);
		memcpy(exact, p, part);
		state = hello_feed(&r, exact, part, ret, &why);
		free(exact);
		p += part;
		n -= part;
		require(r.message.len <= HELLO_MAX + 4);
	}
	require(state == 0 || state == -EAGAIN || (why.code == -state && why.text[0]));
	hello_done(&r);
	return state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hello whole = {.named = false}, cut = {.named = false};
	if (!size)
		return 0;
	size_t piece = data[0];
	int a = read_pieces(data + 1, size - 1, 0, &whole);
	int b = read_pieces(data + 1, size - 1, piece, &cut);
	require(a == b);
	require(a != 0 || memcmp(&whole, &cut, sizeof(whole)) == 0);
	require(a == 0 || a == -EAGAIN || a == -EBADMSG || a == -EMSGSIZE);
	if (a == 0 && whole.named) {
		char again[POLICY_HOST_MAX];
		size_t n = strlen(whole.sni);
		require(policy_host_canonical(whole.sni, n, again, NULL) == 0);
		require(strcmp(again, whole.sni) == 0);
	}
	require(whole.named == (whole.sni[0] != '\0'));
	return 0;
}
