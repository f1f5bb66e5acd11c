/* SPDX-License-Identifier: Apache-2.0 */
/* What the variables of a credential hold in the guest: random, of plausible shape, worthless. */
#pragma once

#include "base/doc.h"
#include "vault/secret.h"

/* {"VARIABLE": "placeholder", …} for a secret of this name and kind: a new reference; NULL: no
   memory. Shapes follow what tools check: ghp_… for GitHub's tokens, sk-ant-… for Anthropic's,
   AKIA… for an access key id, else sp_NAME_ and 32 hex digits. sigv4 has AWS_ACCESS_KEY_ID and
   AWS_SECRET_ACCESS_KEY, whatever its name; certificate has none. */
json_t *placeholder_variables(const char *name, enum secret_kind kind);
