/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values live in pages of their own: locked in memory, left out of core dumps, emptied in children,
 * wiped before they are given back. Everything else about a secret (name, hosts) is no secret.
 */
#include "vault/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#define SECRETS_MAX      64 /* in one set */
#define SECRET_HOSTS_MAX 64 /* of one secret */
#define SAMPLE_MAX       (POLICY_HOST_MAX + 8)

struct secret {
	char *name;
	char *placeholder; /* may be NULL */
	char **hosts;      /* canonical names or patterns */
	size_t host_count;
	char *value; /* value_len bytes and a NUL, in pages of its own */
	size_t value_len;
};

struct secrets {
	struct secret list[SECRETS_MAX];
	size_t count;
};

static char *pages_new(size_t n, const char *name)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, n, MADV_DONTDUMP) < 0 || madvise(p, n, MADV_WIPEONFORK) < 0) {
		munmap(p, n);
		return NULL;
	}
	if (mlock(p, n) < 0)
		log_warn(
			"secret %s is not locked in memory (%s): raise RLIMIT_MEMLOCK or turn swap off",
			name, strerrordesc_np(errno));
	return p;
}

static void secret_done(struct secret *s)
{
	if (s->value) {
		explicit_bzero(s->value, s->value_len + 1);
		munmap(s->value, s->value_len + 1);
	}
	for (size_t i = 0; i < s->host_count; i++)
		free(s->hosts[i]);
	free(s->hosts);
	free(s->placeholder);
	free(s->name);
	*s = (struct secret){0};
}

struct secrets *secrets_new(void)
{
	return calloc(1, sizeof(struct secrets));
}

void secrets_free(struct secrets *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->count; i++)
		secret_done(&s->list[i]);
	free(s);
}

static int value_check(const char *value, size_t len, const char *name, struct err *e)
{
	if (!len)
		return err_set(e, EINVAL, "secret %s is empty: set the variable", name);
	if (len > SECRET_VALUE_MAX)
		return err_set(e, EINVAL, "secret %s is longer than %d bytes", name,
			       SECRET_VALUE_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)value[i];
		if (c == '\n' || c == '\r')
			return err_set(e, EINVAL,
				       "secret %s has a line break in it: remove it (a file's last "
				       "newline?)",
				       name);
		if (c < 0x20 || c == 0x7f)
			return err_set(e, EINVAL, "secret %s has a control character in it", name);
	}
	if (value[0] == ' ' || value[len - 1] == ' ')
		return err_set(e, EINVAL, "secret %s begins or ends with a space", name);
	return 0;
}

/* Turns "*.x" and "**.x" into a name that the pattern matches: the labels put for the stars are
 * given. */
static bool pattern_sample(const char *pattern, const char *labels, char out[SAMPLE_MAX])
{
	const char *rest = pattern;
	while (*rest == '*')
		rest++;
	if (rest == pattern) {
		snprintf(out, SAMPLE_MAX, "%s", pattern);
		return !*labels;
	}
	if (!*labels)
		snprintf(out, SAMPLE_MAX, "%s", rest + 1);
	else
		snprintf(out, SAMPLE_MAX, "%s%s", labels, rest);
	return policy_pattern_matches(pattern, out);
}

/* Whether some name matches both. Stars stand at the front alone, so three samples of each tell. */
static bool patterns_overlap(const char *a, const char *b)
{
	static const char *const labels[] = {"", "a", "a.a"};
	char sample[SAMPLE_MAX];
	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		if (pattern_sample(a, labels[i], sample) && policy_pattern_matches(b, sample))
			return true;
		if (pattern_sample(b, labels[i], sample) && policy_pattern_matches(a, sample))
			return true;
	}
	return false;
}

static int secret_add_host(const struct secrets *set, struct secret *s, const json_t *host,
			   struct err *e)
{
	if (!json_is_string(host) || strlen(json_string_value(host)) != json_string_length(host))
		return err_set(e, EINVAL, "secret %s: hosts must be names", s->name);
	char name[POLICY_PATTERN_MAX];
	int r = policy_pattern_canonical(json_string_value(host), name, e);
	if (r < 0) {
		err_prefix(e, "secret %s", s->name);
		return r;
	}
	for (size_t i = 0; i < set->count; i++)
		for (size_t k = 0; k < set->list[i].host_count; k++)
			if (patterns_overlap(set->list[i].hosts[k], name))
				return err_set(
					e, EINVAL,
					"secrets %s and %s are both for %s: one host gets one "
					"credential",
					set->list[i].name, s->name, name);
	char *copy = strdup(name);
	if (!copy)
		return err_set(e, ENOMEM, "no memory");
	s->hosts[s->host_count++] = copy;
	return 0;
}

static int secret_set_value(struct secret *s, const json_t *secret, struct err *e)
{
	const json_t *value = json_object_get(secret, "value");
	if (!json_is_string(value))
		return err_set(e, EINVAL, "secret %s: value must be a string", s->name);
	size_t len = json_string_length(value);
	int r = value_check(json_string_value(value), len, s->name, e);
	if (r < 0)
		return r;
	s->value = pages_new(len + 1, s->name);
	if (!s->value)
		return err_set(e, ENOMEM, "secret %s: no memory that is kept out of dumps",
			       s->name);
	s->value_len = len;
	memcpy(s->value, json_string_value(value), len);
	return 0;
}

static int secret_read(const struct secrets *set, struct secret *s, const json_t *secret,
		       struct err *e)
{
	static const char *const known[] = {"name", "value", "hosts", "placeholder", NULL};
	const char *name, *placeholder = NULL;
	json_t *hosts;
	int r = doc_only(secret, known, e);
	if (r < 0 || (r = doc_want_string(secret, "name", &name, e)) < 0)
		return r;
	if (!str_is_env_name(name))
		return err_set(e, EINVAL, "secret '%.64s': not a variable's name", name);
	if ((r = doc_want_array(secret, "hosts", &hosts, e)) < 0 ||
	    (r = doc_opt_string(secret, "placeholder", &placeholder, e)) < 0)
		return r;
	size_t count = json_array_size(hosts);
	if (!count || count > SECRET_HOSTS_MAX)
		return err_set(e, EINVAL, "secret %s: needs 1 to %d hosts", name, SECRET_HOSTS_MAX);

	s->name = strdup(name);
	s->placeholder = placeholder ? strdup(placeholder) : NULL;
	s->hosts = calloc(count, sizeof(*s->hosts));
	if (!s->name || !s->hosts || (placeholder && !s->placeholder))
		return err_set(e, ENOMEM, "no memory");
	for (size_t i = 0; i < count; i++)
		if ((r = secret_add_host(set, s, json_array_get(hosts, i), e)) < 0)
			return r;
	return secret_set_value(s, secret, e);
}

int secrets_add(struct secrets *set, const json_t *secret, struct err *e)
{
	if (set->count == SECRETS_MAX)
		return err_set(e, EINVAL, "more than %d secrets", SECRETS_MAX);
	struct secret s = {0};
	int r = secret_read(set, &s, secret, e);
	if (r < 0) {
		secret_done(&s);
		return r;
	}
	for (size_t i = 0; i < set->count; i++) {
		if (!str_eq(set->list[i].name, s.name))
			continue;
		r = err_set(e, EINVAL, "secret %s is given twice: list its hosts in one", s.name);
		secret_done(&s);
		return r;
	}
	set->list[set->count++] = s;
	return 0;
}

/* Whether rule (of a policy's document) allows https to some name that the pattern host matches. */
static bool rule_opens(const struct policy *p, const json_t *rule, const char *host)
{
	const char *pattern = json_string_value(json_object_get(rule, "host"));
	const char *scheme = json_string_value(json_object_get(rule, "scheme"));
	if (!pattern || (scheme && !str_eq(scheme, "https")) || !patterns_overlap(pattern, host))
		return false;

	static const char *const labels[] = {"", "a", "a.a"};
	const json_t *ports = json_object_get(rule, "ports");
	size_t count = json_array_size(ports);
	for (size_t i = 0; i < (count ? count : 1); i++) {
		json_int_t port = count ? json_integer_value(json_array_get(ports, i)) : 443;
		for (size_t k = 0; k < 2 * sizeof(labels) / sizeof(labels[0]); k++) {
			char sample[SAMPLE_MAX];
			struct policy_dest dest = {.scheme = POLICY_HTTPS, .port = (uint16_t)port};
			struct policy_verdict verdict;
			if (!pattern_sample(k % 2 ? pattern : host, labels[k / 2], sample) ||
			    strlen(sample) >= sizeof(dest.host) ||
			    !policy_pattern_matches(host, sample))
				continue;
			memcpy(dest.host, sample, strlen(sample) + 1);
			policy_decide(p, &dest, &verdict);
			if (verdict.allow)
				return true;
		}
	}
	return false;
}

static bool policy_opens(const struct policy *p, const json_t *document, const char *host)
{
	const json_t *rules = json_object_get(document, "egress");
	for (size_t i = 0; i < json_array_size(rules); i++)
		if (rule_opens(p, json_array_get(rules, i), host))
			return true;
	return false;
}

int secrets_check(const struct secrets *set, const struct policy *p, struct err *e)
{
	auto_json json_t *document = policy_to_json(p);
	if (!document)
		return err_set(e, ENOMEM, "no memory");
	for (size_t i = 0; i < set->count; i++) {
		const struct secret *s = &set->list[i];
		for (size_t k = 0; k < s->host_count; k++)
			if (!policy_opens(p, document, s->hosts[k]))
				return err_set(e, EINVAL,
					       "secret %s is for %s, which no rule allows: add "
					       "--allow-host %s",
					       s->name, s->hosts[k], s->hosts[k]);
	}
	return 0;
}

const struct secret *secrets_for(const struct secrets *set, const struct policy_dest *dest)
{
	if (dest->scheme != POLICY_HTTPS)
		return NULL;
	for (size_t i = 0; i < set->count; i++)
		for (size_t k = 0; k < set->list[i].host_count; k++)
			if (policy_pattern_matches(set->list[i].hosts[k], dest->host))
				return &set->list[i];
	return NULL;
}

const char *secret_name(const struct secret *s)
{
	return s->name;
}

char *secret_authorization(const struct secret *s)
{
	static const char scheme[] = "Bearer ";
	char *text = malloc(sizeof(scheme) + s->value_len);
	if (!text)
		return NULL;
	memcpy(text, scheme, sizeof(scheme) - 1);
	memcpy(text + sizeof(scheme) - 1, s->value, s->value_len + 1);
	return text;
}

void secret_text_free(char *text)
{
	if (!text)
		return;
	explicit_bzero(text, strlen(text));
	free(text);
}

bool secret_is_credential_field(const char *name)
{
	static const char *const known[] = {
		"Authorization",
		"Proxy-Authorization",
		"Cookie",
		"Cookie2",
		"Api-Key",
		"ApiKey",
		"Circle-Token",
		"CF-Access-Client-Id",
		"CF-Access-Client-Secret",
		"DD-API-KEY",
		"DD-APPLICATION-KEY",
		"Job-Token",
		"Ocp-Apim-Subscription-Key",
		"Private-Token",
		"X-Access-Token",
		"X-Amz-Security-Token",
		"X-Api-Key",
		"X-Api-Token",
		"X-Auth-Email",
		"X-Auth-Key",
		"X-Auth-Token",
		"X-Figma-Token",
		"X-Functions-Key",
		"X-GitHub-Token",
		"X-Goog-Api-Key",
		"X-Goog-IAM-Authorization-Token",
		"X-Shopify-Access-Token",
		"X-Subscription-Token",
		"X-Vault-Token",
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (str_same_field(name, known[i]))
			return true;
	return false;
}

char *secret_placeholder(const char *name)
{
	uint8_t bytes[16];
	char hex[2 * sizeof(bytes) + 1];
	random_bytes(bytes, sizeof(bytes));
	hex_encode(bytes, sizeof(bytes), hex);
	return str_printf("sp_%s_%s", name, hex);
}
