/* SPDX-License-Identifier: Apache-2.0 */
#include "vault/placeholder.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

/* What tools check before they send a token: its prefix, its length, its letters. */
static const struct {
	const char *word; /* in the variable's name */
	const char *prefix;
	size_t length; /* of what follows */
} shapes[] = {
	{"ANTHROPIC", "sk-ant-api03-", 95},
	{"OPENROUTER", "sk-or-v1-", 64},
	{"OPENAI", "sk-proj-", 48},
	{"GITHUB", "ghp_", 36},
	{"GH_TOKEN", "ghp_", 36},
	{"GITLAB", "glpat-", 20},
	{"NPM_", "npm_", 36},
	{"PYPI", "pypi-", 64},
	{"SLACK", "xoxb-", 48},
	{"STRIPE", "sk_test_", 24},
	{"HUGGING", "hf_", 34},
	{"HF_TOKEN", "hf_", 34},
	{"GROQ", "gsk_", 52},
	{"GOOGLE_API", "AIza", 35},
	{"GEMINI_API", "AIza", 35},
};

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/* prefix and n random characters of the alphabet: heap string. */
static char *shaped(const char *prefix, size_t n, const char *alphabet)
{
	size_t head = strlen(prefix), range = strlen(alphabet);
	char *text = malloc(head + n + 1);
	if (!text)
		return NULL;
	memcpy(text, prefix, head);
	for (size_t i = 0; i < n;) {
		uint8_t byte;
		random_bytes(&byte, 1);
		if (byte < 256 / range * range) /* so that each is as likely */
			text[head + i++] = alphabet[byte % range];
	}
	text[head + n] = '\0';
	return text;
}

static char *for_name(const char *name)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if (strcasestr(name, shapes[i].word))
			return shaped(shapes[i].prefix, shapes[i].length, letters);
	uint8_t bytes[16];
	char hex[2 * sizeof(bytes) + 1];
	random_bytes(bytes, sizeof(bytes));
	hex_encode(bytes, sizeof(bytes), hex);
	return str_printf("sp_%s_%s", name, hex);
}

static int add(json_t *variables, const char *name, char *text)
{
	auto_free char *owned = text;
	return owned ? json_object_set_new(variables, name, json_string(owned)) : -1;
}

json_t *placeholder_variables(const char *name, enum secret_kind kind)
{
	json_t *variables = json_object();
	int r = variables ? 0 : -1;
	if (r == 0 && kind == SECRET_SIGV4) {
		r = add(variables, "AWS_ACCESS_KEY_ID", shaped("AKIA", 16, upper));
		if (r == 0)
			r = add(variables, "AWS_SECRET_ACCESS_KEY", shaped("", 40, letters));
	} else if (r == 0 && kind != SECRET_CERTIFICATE) {
		r = add(variables, name, for_name(name));
	}
	if (r == 0)
		return variables;
	json_decref(variables);
	return NULL;
}
