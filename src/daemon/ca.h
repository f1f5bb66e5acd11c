/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's certificate authority. Its key stays in spaced; a gateway gets an intermediate of its
 * own, short-lived and good for leaves alone, so that a gateway taken over can't speak for longer
 * than its sandbox.
 */
#pragma once

#include "base/err.h"

struct ca;

/* Loads DIR/ca.crt and DIR/ca.key, or makes them (P-256, ten years). NULL on failure. */
struct ca *ca_open(const char *dir, struct err *e);
void ca_free(struct ca *ca);

/* The certificate that images trust, PEM. Borrowed. */
const char *ca_certificate(const struct ca *ca);

/* An intermediate for one sandbox: its certificate and key as PEM heap strings; the key is wiped by
   the caller. It is valid from a day ago for 30 days. 0 or -errno. */
int ca_issue(const struct ca *ca, const char *sandbox, char **ret_certificate, char **ret_key,
	     struct err *e);
