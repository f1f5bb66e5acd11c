/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes Connect envelopes; a length is believed only after it was held against the cap.
 */
#include "http/envelope.h"

#include <errno.h>

ssize_t envelope_read(const uint8_t *p, size_t n, size_t max, struct envelope *ret)
{
	if (!n)
		return -EAGAIN;
	if (p[0] != ENVELOPE_MESSAGE && p[0] != ENVELOPE_END)
		return -EBADMSG;
	if (n < ENVELOPE_HEAD)
		return -EAGAIN;
	size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (len > max)
		return -EMSGSIZE;
	if (n - ENVELOPE_HEAD < len)
		return -EAGAIN;
	*ret = (struct envelope){(enum envelope_flag)p[0], p + ENVELOPE_HEAD, len};
	return (ssize_t)(ENVELOPE_HEAD + len);
}

int envelope_write(struct buf *out, enum envelope_flag flag, const void *payload, size_t len)
{
	if (len > UINT32_MAX)
		return -EMSGSIZE;
	int r = buf_reserve(out, ENVELOPE_HEAD + len);
	if (r < 0)
		return r;
	const uint8_t head[ENVELOPE_HEAD] = {
		(uint8_t)flag,       (uint8_t)(len >> 24), (uint8_t)(len >> 16),
		(uint8_t)(len >> 8), (uint8_t)len,
	};
	buf_append(out, head, sizeof(head));
	return buf_append(out, payload, len);
}
