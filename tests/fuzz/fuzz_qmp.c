/* SPDX-License-Identifier: Apache-2.0 */
/* QMP input in two pieces, the first byte saying where to cut: any bytes end in messages, hunger or
 * refusal. */
#include <errno.h>
#include <stdlib.h>

#include "vmm/qmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int drain(struct qmp_decoder *d)
{
	struct qmp_msg m;
	struct err e = {0};
	int rc;

	while ((rc = qmp_next(d, &m, &e)) == 0) {
		if (m.kind == QMP_EVENT && m.name[0] == '\0')
			abort();
		qmp_msg_done(&m);
	}
	if (rc != -EAGAIN && (rc != -EBADMSG || e.code == 0))
		abort();
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct qmp_decoder d;

	if (size == 0)
		return 0;
	size_t cut = data[0] < size - 1 ? data[0] : size - 1;
	qmp_decoder_init(&d);
	if (qmp_feed(&d, data + 1, cut) == 0 && drain(&d) == -EAGAIN &&
	    qmp_feed(&d, data + 1 + cut, size - 1 - cut) == 0)
		drain(&d);
	qmp_decoder_done(&d);
	return 0;
}
