/* SPDX-License-Identifier: Apache-2.0 */
/* Between template.c and template_list.c. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "daemon/node.h"

/* Why a template with this manifest can't be used for an image of that hash here; NULL: it can. */
const char *template_differs(const struct node *n, const json_t *extra, const char *image_hash);

/* Whether it is being verified or made. */
bool template_busy(struct node *n, const char *name);
