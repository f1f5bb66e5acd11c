/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/policies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/definition.h"
#include "daemon/grants.h"

#define NEAR_MAX 64 /* rules that nearly decided, in one answer */

static int load_doc(const json_t *file, struct doc *ret, struct err *e)
{
	const char *name = "policy", *text = NULL;
	int r = doc_opt_string(file, "name", &name, e);
	if (r == 0)
		r = doc_want_string(file, "text", &text, e);
	return r < 0 ? err_prefix(e, "policy") : doc_load(ret, name, text, strlen(text), e);
}

/* -- `credentials:` -- */

/* The member of a definition that an error is about is named in it; its place is told, or that of
   the whole. */
static int definition_error(const struct doc *doc, size_t i, json_t *item, const struct err *why,
			    struct err *e)
{
	const char *key;
	json_t *value, *at = item;
	json_object_foreach(item, key, value)
	{
		const char *found = json_is_boolean(value) || json_is_null(value)
					    ? NULL
					    : strstr(why->text, key);
		size_t n = strlen(key);
		if (found && !str_eq(key, "name") && (found[n] == ':' || found[n] == ' ') &&
		    (found == why->text || found[-1] == ' '))
			at = value;
	}
	return doc_error(doc, at, e, "credentials[%zu]: %s", i, why->text);
}

/* A definition as a grant. */
static int entry_of(struct node *n, const struct definition *d, json_t **ret, struct err *e)
{
	auto_json json_t *entry = json_deep_copy(d->entry);
	int r = entry ? 0 : -1;
	if (r == 0 && d->kind == SOURCE_STORED)
		r = json_object_set(entry, "stored", json_object_get(d->source, "stored"));
	else if (r == 0 && d->kind != SOURCE_ENV && d->kind != SOURCE_FILE)
		r = json_object_set(entry, "source", d->source);
	if (r < 0)
		return err_set(e, ENOMEM, "no memory");
	r = grants_make(n, entry, e);
	if (r == 0)
		*ret = take_ptr(entry);
	return r;
}

static int read_credential(struct node *n, json_t *item, json_t *list, struct err *e)
{
	struct definition d;
	const char *name = NULL;
	json_t *entry = NULL;
	int r = json_is_object(item) ? doc_want_string(item, "name", &name, e)
				     : err_set(e, EINVAL, "must be a mapping with a name");
	if (r == 0)
		r = definition_read(name, item, DEFINITION_IN_POLICY, &d, e);
	if (r < 0)
		return r;
	r = entry_of(n, &d, &entry, e);
	definition_done(&d);
	if (r == 0 && json_array_append_new(list, entry) < 0)
		r = err_set(e, ENOMEM, "no memory");
	return r;
}

/* Those of a document, which has none afterwards. */
static int take_credentials(struct node *n, struct doc *doc, json_t **ret, struct err *e)
{
	json_t *section = json_object_get(doc->root, "credentials"), *item;
	auto_json json_t *list = json_array();
	struct err why = {0};
	size_t i;
	if (section && !json_is_array(section) && !json_is_null(section))
		return doc_error(doc, json_is_boolean(section) ? doc->root : section, e,
				 "credentials: must be a list");
	json_array_foreach(section, i, item)
	{
		int r = read_credential(n, item, list, &why);
		if (r < 0)
			return definition_error(doc, i, item, &why, e);
	}
	*ret = take_ptr(list);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}

/* Each fits the policy, and all of them each other; else says where. */
static int check_credentials(const struct doc *doc, const json_t *list, const struct policy *p,
			     struct err *e)
{
	json_t *section = json_object_get(doc->root, "credentials"), *entry;
	auto_json json_t *so_far = json_array();
	struct err why = {0};
	size_t i;
	json_array_foreach((json_t *)(uintptr_t)list, i, entry)
	{
		json_array_append(so_far, entry);
		int r = grants_check(so_far, p, &why);
		if (r == 0 && grants_named_twice(so_far))
			r = err_set(&why, EINVAL, "name: there is another of that name above");
		if (r < 0)
			return definition_error(doc, i, json_array_get(section, i), &why, e);
	}
	return 0;
}

/* Marks of places are by address, so the section stays in memory until the document goes. */
static int compile(struct node *n, struct doc *doc, struct policy **ret, json_t **ret_credentials,
		   struct err *e)
{
	auto_json json_t *section = json_incref(json_object_get(doc->root, "credentials"));
	auto_json json_t *list = NULL;
	int r = take_credentials(n, doc, &list, e);
	if (r < 0)
		return r;
	if (section && !ret_credentials)
		return doc_error(
			doc, json_is_array(section) ? section : doc->root, e,
			"credentials: set them at the sandbox's start, or use 'space grant "
			"add'");
	json_object_del(doc->root, "credentials");
	*ret = policy_compile(doc, e);
	if (!*ret)
		return -EINVAL;
	if (section)
		json_object_set(doc->root, "credentials", section);
	r = check_credentials(doc, list, *ret, e);
	if (r == 0 && ret_credentials)
		*ret_credentials = take_ptr(list);
	return r;
}

/* *ret is set when the policy itself is right, even where its credentials are not. */
static int load(struct node *n, const json_t *file, struct policy **ret, json_t **ret_credentials,
		struct err *e)
{
	struct doc doc;
	int r = load_doc(file, &doc, e);
	if (r < 0)
		return r;
	r = compile(n, &doc, ret, ret_credentials, e);
	doc_done(&doc);
	return r;
}

static int add_allowed(const json_t *allow, struct policy *p, struct err *e)
{
	size_t i;
	json_t *spec;
	json_array_foreach((json_t *)allow, i, spec)
	{
		if (!json_is_string(spec))
			return err_set(e, EINVAL, "allow: must be a list of strings");
		int r = policy_allow(p, json_string_value(spec), e);
		if (r < 0)
			return r;
	}
	return 0;
}

int policies_from_request(struct node *n, const json_t *request, struct policy **ret,
			  json_t **ret_credentials, struct err *e)
{
	json_t *file = NULL, *allow = NULL;
	struct policy *p = NULL;
	int r = doc_opt_object(request, "policy", &file, e);
	if (r == 0)
		r = doc_opt_array(request, "allow", &allow, e);
	if (r == 0 && file)
		r = load(n, file, &p, ret_credentials, e);
	if (r < 0) {
		policy_free(p);
		return r;
	}
	if (!p && !(p = policy_new_empty()))
		return err_set(e, ENOMEM, "no memory");
	r = add_allowed(allow, p, e);
	if (r < 0)
		policy_free(p);
	else
		*ret = p;
	return r;
}

static void reply(struct http_exchange *x, json_t *j)
{
	auto_json json_t *owned = j;
	auto_free char *text = owned ? doc_to_text(owned) : NULL;
	if (text)
		http_exchange_reply(x, 200, "application/json", text, strlen(text));
	else
		http_exchange_reply_error(x, 500, "no memory");
}

void policies_check(struct node *n, struct http_exchange *x, const char *body, size_t len)
{
	struct err e = {0};
	auto_json json_t *j = doc_parse_json(body, len, &e), *credentials = NULL;
	json_t *file = NULL;
	struct policy *p = NULL;
	if (!j || doc_want_object(j, "policy", &file, &e) < 0)
		http_exchange_reply_error(x, 400, "%s", e.text);
	else if (load(n, file, &p, &credentials, &e) < 0)
		reply(x, json_pack("{s:b, s:s}", "ok", 0, "problem", e.text));
	else
		reply(x, json_pack("{s:b, s:I, s:o, s:o}", "ok", 1, "rules",
				   (json_int_t)policy_rule_count(p), "policy", policy_to_json(p),
				   "credentials", grants_names(credentials)));
	policy_free(p);
}

/* A question: a document that remembers its places, and a destination. */
struct question {
	struct doc doc;
	struct policy *policy;
	struct policy_dest dest;
	char *path;
};

static void question_done(struct question *q)
{
	policy_free(q->policy);
	doc_done(&q->doc);
	free(q->path);
}

static int question_read(const json_t *j, struct question *q, struct err *e)
{
	json_t *file = NULL;
	const char *method = "GET", *url = NULL;
	int r = doc_want_object(j, "policy", &file, e);
	if (r < 0 || (r = doc_want_string(j, "url", &url, e)) < 0 ||
	    (r = doc_opt_string(j, "method", &method, e)) < 0 ||
	    (r = load_doc(file, &q->doc, e)) < 0)
		return r;
	json_object_del(q->doc.root, "credentials"); /* they decide nothing */
	q->policy = policy_compile(&q->doc, e);
	if (!q->policy)
		return -EINVAL;
	r = policy_dest_from_url(url, &q->dest, &q->path, e);
	if (r < 0)
		return err_prefix(e, "url");
	q->dest.method = q->path ? method : NULL;
	return 0;
}

/* "FILE:LINE:COLUMN: egress[3]" */
static json_t *rule_place(const struct question *q, size_t i)
{
	struct err where = {0};
	const json_t *rules = json_object_get(q->doc.root, "egress");
	doc_error(&q->doc, json_array_get(rules, i), &where, "egress[%zu]", i);
	return json_string(where.text);
}

/* The rules before the one that decides that are about the host and yet differ. */
static json_t *nearly(const struct question *q, size_t end)
{
	json_t *list = json_array();
	for (size_t i = 0; i < end && json_array_size(list) < NEAR_MAX; i++) {
		const char *differs = policy_rule_differs(q->policy, i, &q->dest);
		if (!differs || str_eq(differs, "host") || str_eq(differs, "cidr"))
			continue;
		json_array_append_new(list, json_pack("{s:o, s:s}", "place", rule_place(q, i),
						      "differs", differs));
	}
	return list;
}

void policies_explain(struct node *n, struct http_exchange *x, const char *body, size_t len)
{
	(void)n;
	struct err e = {0};
	struct question q = {0};
	auto_json json_t *j = doc_parse_json(body, len, &e);
	if (!j || question_read(j, &q, &e) < 0) {
		http_exchange_reply_error(x, 400, "%s", e.text);
		question_done(&q);
		return;
	}
	struct policy_verdict v;
	policy_decide(q.policy, &q.dest, &v);
	bool decided = v.index != POLICY_NO_RULE;
	size_t end = decided ? v.index : policy_rule_count(q.policy);
	reply(x, json_pack("{s:b, s:s, s:o*, s:s*, s:o}", "allow", v.allow, "rule", v.rule, "place",
			   decided ? rule_place(&q, v.index) : NULL, "allowWith",
			   v.hint[0] ? v.hint : NULL, "nearly", nearly(&q, end)));
	question_done(&q);
}
