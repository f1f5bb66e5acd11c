/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths are kept as a tree of segments for each origin. A node with too many children, or too deep,
 * forgets them and stands for all below it, so that memory is bounded whatever a guest asks for.
 */
#include "daemon/learn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "base/str.h"
#include "net/address.h"
#include "policy/policy.h"

#define SIBLINGS_MAX 8            /* segments below one prefix; with more, all of them */
#define DEPTH_MAX    12           /* segments of a path */
#define SEGMENT_MAX  64           /* bytes; what is longer is no name */
#define HEX_MIN      16           /* digits, from which on hexadecimal is an identifier */
#define NODES_MAX    16384        /* of all trees */
#define PATHS_MAX    256          /* of one rule; a policy takes no more */
#define METHODS_MAX  32           /* the same */
#define METHOD_MAX   24           /* bytes of one */
#define ORIGINS_MAX  1000         /* a policy has at most 1024 rules */
#define TEXT_MAX     (400u << 10) /* bytes of the document */

struct node {
	char *segment;
	struct node *children[SIBLINGS_MAX];
	size_t count;
	bool end; /* a path ends here */
	bool all; /* it stands for all below */
};

struct origin {
	char *host, *scheme;
	uint16_t port;
	char *methods[METHODS_MAX];
	size_t method_count;
	bool any_method, encoded_slash;
	struct node root;
};

struct learn {
	struct origin *origins[ORIGINS_MAX];
	size_t count, nodes;
	json_t *index;  /* "SCHEME HOST PORT" to the place in origins */
	json_t *policy; /* the last that the sandbox had, or NULL */
	uint64_t requests, left_out;
};

/* -- the tree -- */

/* How many nodes are gone. */
static size_t node_empty(struct node *n)
{
	size_t gone = n->count;
	for (size_t i = 0; i < n->count; i++) {
		gone += node_empty(n->children[i]);
		free(n->children[i]->segment);
		free(n->children[i]);
	}
	n->count = 0;
	return gone;
}

static void node_stand_for_all(struct learn *l, struct node *n)
{
	l->nodes -= node_empty(n);
	n->all = true;
}

static bool all_of(const char *s, size_t n, const char *set)
{
	for (size_t i = 0; i < n; i++)
		if (!strchr(set, s[i]))
			return false;
	return true;
}

static bool is_uuid(const char *s, size_t n)
{
	if (n != 36 || !all_of(s, n, "0123456789abcdefABCDEF-"))
		return false;
	return s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-';
}

/* Whether a segment looks like one of many: a number, a UUID, a digest, a blob. */
static bool is_identifier(const char *s, size_t n)
{
	if (n == 0)
		return false;
	return n > SEGMENT_MAX || all_of(s, n, "0123456789") || is_uuid(s, n) ||
	       (n >= HEX_MIN && all_of(s, n, "0123456789abcdefABCDEF"));
}

static struct node *child_of(struct node *n, const char *s, size_t len)
{
	for (size_t i = 0; i < n->count; i++)
		if (strlen(n->children[i]->segment) == len &&
		    memcmp(n->children[i]->segment, s, len) == 0)
			return n->children[i];
	return NULL;
}

/* NULL: no memory. */
static struct node *child_new(struct learn *l, struct node *n, const char *s, size_t len)
{
	struct node *c = calloc(1, sizeof(*c));
	if (!c || !(c->segment = strndup(s, len))) {
		free(c);
		return NULL;
	}
	n->children[n->count++] = c;
	l->nodes++;
	return c;
}

static int tree_add(struct learn *l, struct node *n, const char *path)
{
	const char *s = path + 1;
	for (unsigned depth = 0; !n->all; depth++) {
		size_t len = strcspn(s, "/");
		bool last = !s[len];
		const char *segment = s;
		size_t segment_len = len;
		if (is_identifier(s, len)) {
			segment = "*";
			segment_len = 1;
		}
		struct node *c = child_of(n, segment, segment_len);
		if (!c &&
		    (n->count == SIBLINGS_MAX || depth == DEPTH_MAX || l->nodes == NODES_MAX)) {
			node_stand_for_all(l, n);
			return 0;
		}
		if (!c && !(c = child_new(l, n, segment, segment_len)))
			return -ENOMEM;
		if (last) {
			c->end = true;
			return 0;
		}
		n = c;
		s += len + 1;
	}
	return 0;
}

/* -- origins -- */

static void origin_free(struct origin *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->method_count; i++)
		free(o->methods[i]);
	node_empty(&o->root);
	free(o->host);
	free(o->scheme);
	free(o);
}

/* NULL with *ret_r set: -ENOMEM, or 0 when there is no room. */
static struct origin *origin_get(struct learn *l, const char *scheme, const char *host,
				 uint16_t port, int *ret_r)
{
	auto_free char *key = str_printf("%s %s %u", scheme, host, port);
	*ret_r = -ENOMEM;
	if (!key)
		return NULL;
	const json_t *at = json_object_get(l->index, key);
	if (at)
		return l->origins[json_integer_value(at)];
	if (l->count == ORIGINS_MAX) {
		l->left_out++;
		*ret_r = 0;
		return NULL;
	}
	struct origin *o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->host = strdup(host);
	o->scheme = strdup(scheme);
	o->port = port;
	if (!o->host || !o->scheme ||
	    json_object_set_new(l->index, key, json_integer((json_int_t)l->count)) < 0) {
		origin_free(o);
		return NULL;
	}
	l->origins[l->count++] = o;
	return o;
}

static int origin_method(struct origin *o, const char *method)
{
	for (size_t i = 0; i < o->method_count; i++)
		if (str_eq(o->methods[i], method))
			return 0;
	/* A rule can't name all that a gateway lets pass. */
	if (o->method_count == METHODS_MAX || strlen(method) > METHOD_MAX ||
	    !all_of(method, strlen(method), "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
		o->any_method = true;
	if (o->any_method)
		return 0;
	o->methods[o->method_count] = strdup(method);
	return o->methods[o->method_count++] ? 0 : -ENOMEM;
}

/* -- records -- */

struct learn *learn_new(void)
{
	struct learn *l = calloc(1, sizeof(*l));
	if (l && !(l->index = json_object())) {
		free(l);
		return NULL;
	}
	return l;
}

void learn_free(struct learn *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->count; i++)
		origin_free(l->origins[i]);
	json_decref(l->index);
	json_decref(l->policy);
	free(l);
}

static int take_request(struct learn *l, const json_t *record)
{
	const char *scheme = NULL, *host = NULL, *method = NULL, *path = NULL;
	uint64_t port = 0;
	if (doc_want_string(record, "scheme", &scheme, NULL) < 0 ||
	    doc_want_string(record, "host", &host, NULL) < 0 ||
	    doc_want_uint(record, "port", 1, 65535, &port, NULL) < 0 ||
	    doc_opt_string(record, "method", &method, NULL) < 0 ||
	    doc_opt_string(record, "path", &path, NULL) < 0)
		return 0;
	int r;
	struct origin *o = origin_get(l, scheme, host, (uint16_t)port, &r);
	if (!o)
		return r;
	l->requests++;
	if (!method || !path || *path != '/')
		return 0;
	o->encoded_slash |= strstr(path, "%2F") != NULL;
	r = origin_method(o, method);
	return r < 0 ? r : tree_add(l, &o->root, path);
}

int learn_take(struct learn *l, const json_t *record)
{
	const char *kind = "";
	doc_opt_string(record, "kind", &kind, NULL);
	if (str_eq(kind, "egress.request"))
		return take_request(l, record);
	json_t *policy = json_object_get(record, "policy");
	if ((str_eq(kind, "sandbox.create") || str_eq(kind, "policy.set")) &&
	    json_is_object(policy)) {
		json_decref(l->policy);
		l->policy = json_incref(policy);
	}
	return 0;
}

size_t learn_rules(const struct learn *l)
{
	return l->count;
}

/* -- the document -- */

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_origins(const void *a, const void *b)
{
	const struct origin *x = *(struct origin *const *)a, *y = *(struct origin *const *)b;
	int r = strcmp(x->host, y->host);
	if (r == 0)
		r = strcmp(x->scheme, y->scheme);
	return r ? r : (int)x->port - (int)y->port;
}

/* The patterns of a tree that is looked at down to this depth. */
struct paths {
	char *list[PATHS_MAX];
	size_t count;
	unsigned depth;
	bool too_many, no_memory;
};

static void paths_done(struct paths *p)
{
	while (p->count)
		free(p->list[--p->count]);
}

static void paths_put(struct paths *p, char *path)
{
	p->no_memory |= !path;
	p->too_many |= p->count == PATHS_MAX;
	if (path && p->count < PATHS_MAX)
		p->list[p->count++] = path;
	else
		free(path);
}

static void paths_collect(struct paths *p, const struct node *n, const char *prefix, unsigned depth)
{
	if (n->all || (depth == p->depth && n->count)) {
		paths_put(p, str_printf("%s/**", prefix));
		return;
	}
	if (n->end)
		paths_put(p, strdup(prefix));
	for (size_t i = 0; i < n->count && !p->too_many; i++) {
		auto_free char *path = str_printf("%s/%s", prefix, n->children[i]->segment);
		if (path)
			paths_collect(p, n->children[i], path, depth + 1);
		else
			p->no_memory = true;
	}
}

static int put_list(struct buf *b, const char *name, char **list, size_t count, bool flow)
{
	int r = buf_printf(b, "    %s:%s", name, flow ? " [" : "\n");
	qsort(list, count, sizeof(*list), compare_text);
	for (size_t i = 0; r == 0 && i < count; i++) {
		auto_json json_t *j = json_string(list[i]);
		auto_free char *text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
		if (!text)
			return -ENOMEM;
		r = flow ? buf_printf(b, "%s%s", i ? ", " : "", text)
			 : buf_printf(b, "      - %s\n", text);
	}
	return r == 0 && flow ? buf_append_str(b, "]\n") : r;
}

/* Looks less deep until there are few enough; without paths the rule has all. */
static int put_paths(struct buf *b, const struct origin *o, unsigned depth)
{
	struct paths p;
	int r = 0;
	do {
		p = (struct paths){.depth = depth};
		paths_collect(&p, &o->root, "", 0);
		if (p.too_many)
			paths_done(&p);
	} while (p.too_many && depth-- > 0);
	bool all = p.count == 1 && str_eq(p.list[0], "/**");
	if (p.no_memory)
		r = -ENOMEM;
	else if (p.count && !all)
		r = put_list(b, "paths", p.list, p.count, false);
	paths_done(&p);
	return r;
}

static int put_origin(struct buf *b, const struct origin *o, unsigned depth)
{
	struct address a;
	bool https = str_eq(o->scheme, "https"), http = str_eq(o->scheme, "http");
	uint16_t usual = http ? 80 : str_eq(o->scheme, "tcp") ? 0 : 443;
	int r;
	if (address_parse(o->host, &a) == 0)
		r = buf_printf(b, "  - cidr: \"%s/%d\"\n", o->host, a.family == AF_INET ? 32 : 128);
	else
		r = buf_printf(b, "  - host: \"%s\"\n", o->host);
	if (r == 0 && !https)
		r = buf_printf(b, "    scheme: %s\n", o->scheme);
	if (r == 0 && o->port != usual)
		r = buf_printf(b, "    ports: [%u]\n", o->port);
	if (r < 0 || (!https && !http))
		return r;
	char *methods[METHODS_MAX];
	memcpy(methods, o->methods, sizeof(methods));
	if (!o->any_method && o->method_count)
		r = put_list(b, "methods", methods, o->method_count, true);
	if (r == 0)
		r = put_paths(b, o, depth);
	if (r == 0 && o->encoded_slash)
		r = buf_append_str(b, "    encodedSlash: true\n");
	return r;
}

static int put_json(struct buf *b, const char *before, const json_t *j)
{
	auto_free char *text = j ? doc_to_text(j) : NULL;
	if (!text)
		return j ? -ENOMEM : 0;
	return buf_printf(b, "%s%s\n", before, text);
}

static int put_denials(struct buf *b, const struct learn *l)
{
	size_t i;
	json_t *rule;
	int r = 0;
	json_array_foreach(json_object_get(l->policy, "egress"), i, rule)
	{
		if (json_is_true(json_object_get(rule, "deny")) && r == 0)
			r = put_json(b, "  - ", rule);
	}
	return r;
}

/* Pins, of the hosts that were asked for. */
static json_t *pins_used(const struct learn *l)
{
	json_t *used = json_array(), *pin;
	size_t i;
	json_array_foreach(json_object_get(l->policy, "resolve"), i, pin)
	{
		const char *host = json_string_value(json_object_get(pin, "host"));
		for (size_t k = 0; k < l->count; k++) {
			if (!str_eq(l->origins[k]->host, host))
				continue;
			json_array_append(used, pin);
			break;
		}
	}
	return used;
}

static int put_document(struct buf *b, const struct learn *l, unsigned depth)
{
	int r = buf_printf(
		b,
		"# Learned from what a sandbox did: %ju requests that were let out.\n"
		"# It allows what was asked for, whether that was meant or not: read it\n"
		"# before you use it.\n",
		(uintmax_t)l->requests);
	if (r == 0 && l->left_out)
		r = buf_printf(b, "# NOT WHOLE: %ju requests to further hosts did not fit.\n",
			       (uintmax_t)l->left_out);
	if (r == 0)
		r = buf_append_str(b, l->count ? "egress:\n" : "egress: []\n");
	if (r == 0 && l->count)
		r = put_denials(b, l);
	for (size_t i = 0; r == 0 && i < l->count; i++)
		r = put_origin(b, l->origins[i], depth);
	auto_json json_t *pins = pins_used(l);
	if (r == 0 && json_array_size(pins))
		r = put_json(b, "resolve: ", pins);
	if (r == 0)
		r = put_json(b, "limits: ", json_object_get(l->policy, "limits"));
	return r < 0 ? r : put_json(b, "proxy: ", json_object_get(l->policy, "proxy"));
}

/* What we write must be what we read. */
static int check(const char *text, struct err *e)
{
	struct doc doc;
	int r = doc_load(&doc, "learned policy", text, strlen(text), e);
	if (r < 0)
		return r;
	struct policy *p = policy_compile(&doc, e);
	doc_done(&doc);
	policy_free(p);
	return p ? 0 : -EINVAL;
}

char *learn_to_yaml(const struct learn *l, struct err *e)
{
	static const unsigned depths[] = {DEPTH_MAX + 1, 4, 2, 1, 0};
	int r = -EMSGSIZE;
	struct buf b;
	struct learn sorted = *l;
	qsort(sorted.origins, sorted.count, sizeof(sorted.origins[0]), compare_origins);
	buf_init(&b, TEXT_MAX);
	for (size_t i = 0; r == -EMSGSIZE && i < sizeof(depths) / sizeof(depths[0]); i++) {
		buf_done(&b);
		r = put_document(&b, &sorted, depths[i]);
	}
	auto_free char *text = r == 0 ? buf_take_str(&b) : NULL;
	buf_done(&b);
	if (r < 0 || !text)
		err_sys(e, r < 0 ? -r : ENOMEM, "can't write what was learned");
	else if (check(text, e) == 0)
		return take_ptr(text);
	return NULL;
}
