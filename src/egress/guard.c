/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of an answer that hide a value, or say what is no longer true of a decoded body, are
 * replaced one by one; what is hidden is as long as what it hides, so that framing stays. */
#include "egress/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

void guard_done(struct guard *g)
{
	for (size_t i = 0; i < g->text_count; i++)
		free(g->texts[i]);
	free(g->texts);
	scan_free(g->up);
	scan_free(g->down);
	frames_free(g->frames_up);
	frames_free(g->frames_down);
	decode_free(g->decode);
	needles_put(g->values);
	*g = (struct guard){0};
}

/* -- the request -- */

struct collected {
	struct buf *to;
	int failed;
};

static void collect(void *user, const uint8_t *p, size_t n)
{
	struct collected *c = user;
	if (!c->failed)
		c->failed = buf_append(c->to, p, n);
}

int guard_push(struct guard *g, struct needles *placeholders, const uint8_t *p, size_t n,
	       struct buf *ret_clear, unsigned *ret_index)
{
	struct collected clear = {.to = ret_clear};
	buf_init(ret_clear, SIZE_MAX);
	if (!g->up && placeholders && !(g->up = scan_new(placeholders, false)))
		return -ENOMEM;
	if (!g->up)
		return buf_append(ret_clear, p, n);
	int r = scan_push(g->up, p, n, collect, &clear, ret_index);
	return r < 0 ? r : clear.failed;
}

int guard_end(struct guard *g, struct buf *ret_clear, unsigned *ret_index)
{
	struct collected clear = {.to = ret_clear};
	buf_init(ret_clear, SIZE_MAX);
	int r = g->up ? scan_end(g->up, collect, &clear, ret_index) : 0;
	return r < 0 ? r : clear.failed;
}

/* -- the fields of an answer -- */

/* Takes text over, until g is done. NULL: no memory, also when text is. */
static const char *guard_keep(struct guard *g, char *text)
{
	char **texts = text ? reallocarray(g->texts, g->text_count + 1, sizeof(*texts)) : NULL;
	if (!texts) {
		free(text);
		return NULL;
	}
	g->texts = texts;
	return texts[g->text_count++] = text;
}

/* Hides values in one text, which is replaced by another then. */
static int redact_text(struct guard *g, const char **text)
{
	size_t len = strlen(*text);
	if (!needles_in(g->values, *text, len, NULL))
		return 0;
	char *hidden = strdup(*text);
	if (hidden)
		needles_redact(g->values, hidden, len);
	const char *kept = guard_keep(g, hidden);
	if (!kept)
		return -ENOMEM;
	*text = kept;
	return 0;
}

static int redact_fields(struct guard *g, struct fields *f)
{
	for (size_t i = 0; i < f->list.count; i++)
		if (redact_text(g, &f->room[i].name) < 0 || redact_text(g, &f->room[i].value) < 0)
			return -ENOMEM;
	return 0;
}

static bool is_digest(const char *name)
{
	return str_same_field(name, "Content-MD5") || str_same_field(name, "Content-Digest") ||
	       str_same_field(name, "Repr-Digest") || str_same_field(name, "Digest");
}

/* What digests say is no longer true where a value is hidden; that is known when they are gone. */
static void drop_digests(struct fields *f)
{
	size_t kept = 0;
	for (size_t i = 0; i < f->list.count; i++)
		if (!is_digest(f->room[i].name))
			f->room[kept++] = f->room[i];
	f->list.count = kept;
}

/* What a head says of the bytes of a body that are others when it is decoded. */
static bool is_of_coded(const char *name)
{
	return str_same_field(name, "Content-Encoding") || str_same_field(name, "Accept-Ranges");
}

/* The body goes on decoded: it is another representation, of the same meaning. */
static int fields_decoded(struct guard *g, struct fields *f)
{
	size_t kept = 0;
	for (size_t i = 0; i < f->list.count; i++) {
		struct http_field *field = &f->room[i];
		if (is_of_coded(field->name))
			continue;
		if (!strcasecmp(field->name, "ETag") && !str_starts(field->value, "W/") &&
		    !(field->value = guard_keep(g, str_printf("W/%s", field->value))))
			return -ENOMEM;
		f->room[kept++] = *field;
	}
	f->list.count = kept;
	return 0;
}

static bool is_identity(const char *coding)
{
	return !coding || !*coding || !strcasecmp(coding, "identity");
}

/* Messages in a body may be encoded too, which the head says. */
static bool encodes_messages(const struct http_fields *f)
{
	static const char *const names[] = {"grpc-encoding", "connect-content-encoding"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!is_identity(http_fields_get(f, names[i])))
			return true;
	return false;
}

/* Whether the body is to be decoded, and can be. 1, 0, -EBADMSG: why does not repeat what the
 * server says, which may be a value. */
static int must_decode(const struct guard_answer *a, const struct http_fields *f, struct err *why)
{
	const char *coding = http_fields_get(f, "Content-Encoding");
	bool several = http_fields_count(f, "Content-Encoding") > 1;
	if (a->bodiless)
		return coding && decode_knows(coding);
	if (encodes_messages(f))
		return err_set(
			why, EBADMSG,
			"the answer comes in encoded messages, though that was not asked for: "
			"no credential could be seen in it");
	if (is_identity(coding) && !several)
		return 0;
	if (several || !decode_knows(coding) || a->status == 206)
		return err_set(why, EBADMSG,
			       "the answer comes in an encoding that was not asked for: no "
			       "credential could be seen in it");
	return 1;
}

int guard_head(struct guard *g, struct needles *values, const struct guard_answer *a,
	       struct fields *f, struct err *why)
{
	if (a->status == 206 && !a->may_be_part)
		return err_set(
			why, EBADMSG,
			"the answer is a part that was not asked for: a credential could be cut "
			"in two by it");
	int decodes = must_decode(a, &f->list, why);
	if (decodes < 0)
		return decodes;
	drop_digests(f);
	g->decodes = decodes;
	g->values = needles_get(values);
	g->down = scan_new(values, true);
	if (decodes && !a->bodiless)
		g->decode = decode_new(http_fields_get(&f->list, "Content-Encoding"));
	if (!g->down || (decodes && !a->bodiless && !g->decode) ||
	    (decodes && fields_decoded(g, f) < 0) || redact_fields(g, f) < 0)
		return err_set(why, ENOMEM, "the gateway has no memory");
	return 0;
}

int guard_trailers(struct guard *g, struct fields *f)
{
	if (!g->values)
		return 0;
	drop_digests(f);
	return redact_fields(g, f);
}

int guard_pass(struct guard *g, const uint8_t *p, size_t n, scan_sink sink, void *user)
{
	if (g->down)
		return scan_push(g->down, p, n, sink, user, NULL);
	sink(user, p, n);
	return 0;
}

int guard_pass_end(struct guard *g, scan_sink sink, void *user)
{
	return g->down ? scan_end(g->down, sink, user, NULL) : 0;
}

/* -- a WebSocket -- */

int guard_switch(struct guard *g, struct needles *placeholders, struct needles *values,
		 struct fields *f)
{
	if (placeholders && !needles_empty(placeholders) &&
	    !(g->frames_up = frames_new(placeholders, false, values)))
		return -ENOMEM;
	if (!values)
		return 0;
	g->values = needles_get(values);
	g->frames_down = frames_new(values, true, true);
	return g->frames_down ? redact_fields(g, f) : -ENOMEM;
}

/* -- both -- */

int guard_change(struct guard *g, struct needles *placeholders, struct needles *values)
{
	int r = 0;
	if (placeholders && g->up)
		r = scan_change(g->up, placeholders);
	if (r == 0 && placeholders && g->frames_up)
		r = frames_change(g->frames_up, placeholders);
	if (r < 0 || !values || !g->values || g->values == values)
		return r;
	r = g->frames_down ? frames_change(g->frames_down, values) : scan_change(g->down, values);
	if (r == 0) {
		needles_put(g->values);
		g->values = needles_get(values);
	}
	return r;
}

bool guard_is_weak(const struct guard *g)
{
	return (g->up && scan_is_weak(g->up)) || (g->down && scan_is_weak(g->down)) ||
	       (g->frames_up && frames_is_weak(g->frames_up)) ||
	       (g->frames_down && frames_is_weak(g->frames_down));
}

void guard_relent_up(struct guard *g, scan_sink sink, void *user)
{
	if (g->frames_up)
		frames_relent(g->frames_up, sink, user);
	else if (g->up)
		scan_relent(g->up, sink, user);
}

void guard_relent_down(struct guard *g, scan_sink sink, void *user)
{
	if (g->frames_down)
		frames_relent(g->frames_down, sink, user);
	else if (g->down)
		scan_relent(g->down, sink, user);
}
