/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: data is searched for CR LF "--" boundary. A match that the end of the input
 * cuts is remembered as a count, for the bytes are those of the delimiter; when it fails later,
 * they are given out from there. CR is in the delimiter only once, at its start, so that after a
 * failed match no shorter one can be under way.
 */
#include "agent/multipart.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"

enum state {
	STATE_PREAMBLE, /* before the first boundary: data that is dropped */
	STATE_AFTER,    /* behind a boundary: "--" or the end of the line */
	STATE_HEAD,
	STATE_DATA,
	STATE_END,
};

/* Copies a parameter's value at s, quoted or a token, to a heap string; *ret_end points behind it.
 */
static char *take_value(const char *s, const char **ret_end)
{
	auto_buf struct buf out;
	buf_init(&out, strlen(s) + 1);
	if (*s != '"') {
		size_t n = strcspn(s, "; \t");
		*ret_end = s + n;
		return strndup(s, n);
	}
	for (s++; *s && *s != '"'; s++) {
		if (*s == '\\' && (s[1] == '"' || s[1] == '\\'))
			s++;
		if (buf_append(&out, s, 1) < 0)
			return NULL;
	}
	*ret_end = *s ? s + 1 : s;
	return buf_take_str(&out);
}

/* The value of parameter name in "type; a=b; c=d", as a heap string in *ret, NULL when it is
 * absent. 0, -ENOMEM. */
static int find_parameter(const char *value, const char *name, char **ret)
{
	size_t n = strlen(name);
	const char *s = value + strcspn(value, ";");
	*ret = NULL;
	while (*s == ';') {
		s++;
		s += strspn(s, " \t");
		bool wanted = strncasecmp(s, name, n) == 0 && s[n] == '=';
		s += strcspn(s, "=;");
		if (*s != '=')
			continue;
		auto_free char *v = take_value(s + 1, &s);
		if (!v)
			return -ENOMEM;
		if (wanted) {
			*ret = take_ptr(v);
			return 0;
		}
		s += strcspn(s, ";");
	}
	return 0;
}

/* What browsers escape in a file name, back to what it was, in place. */
static void unescape(char *s)
{
	char *out = s;
	for (; *s; out++) {
		bool quote = strncmp(s, "%22", 3) == 0;
		bool cr = strncasecmp(s, "%0D", 3) == 0;
		bool lf = strncasecmp(s, "%0A", 3) == 0;
		*out = quote ? '"' : cr ? '\r' : lf ? '\n' : *s;
		s += quote || cr || lf ? 3 : 1;
	}
	*out = '\0';
}

static bool is_boundary(const char *s)
{
	size_t n = strlen(s);
	return n >= 1 && n <= MULTIPART_BOUNDARY_MAX && s[n - 1] != ' ' &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
			 "'()+_,-./:=? ") == n;
}

int multipart_init(struct multipart *m, const char *content_type)
{
	static const char type[] = "multipart/form-data";
	size_t n = sizeof(type) - 1;
	if (strncasecmp(content_type, type, n) != 0 || !strchr("; \t", content_type[n]))
		return -EINVAL;
	auto_free char *boundary = NULL;
	int r = find_parameter(content_type, "boundary", &boundary);
	if (r < 0)
		return r;
	if (!boundary || !is_boundary(boundary))
		return -EINVAL;
	*m = (struct multipart){.state = STATE_PREAMBLE};
	buf_init(&m->head, MULTIPART_HEAD_MAX);
	memcpy(m->delimiter, "\r\n--", 4);
	memcpy(m->delimiter + 4, boundary, strlen(boundary));
	m->delimiter_len = 4 + strlen(boundary);
	m->matched = 2; /* the first boundary may open the body */
	return 0;
}

void multipart_done(struct multipart *m)
{
	buf_done(&m->head);
	free(m->name);
	free(m->filename);
	m->name = m->filename = NULL;
}

/* Finds the delimiter or its beginning in p[0 .. n): where it starts, n when it does not. */
static size_t find_delimiter(const struct multipart *m, const uint8_t *p, size_t n)
{
	for (size_t at = 0; at < n; at++) {
		const uint8_t *cr = memchr(p + at, '\r', n - at);
		if (!cr)
			return n;
		at = (size_t)(cr - p);
		size_t len = n - at < m->delimiter_len ? n - at : m->delimiter_len;
		if (memcmp(cr, m->delimiter, len) == 0)
			return at;
	}
	return n;
}

static enum multipart_event data_event(struct multipart *m, const void *p, size_t n)
{
	m->data = p;
	m->len = n;
	return m->state == STATE_PREAMBLE ? MULTIPART_MORE : MULTIPART_DATA;
}

/* Goes on with a match that an earlier input ended in. Returns the bytes used. */
static size_t resume_match(struct multipart *m, const uint8_t *p, size_t n,
			   enum multipart_event *ret)
{
	size_t used = 0;
	while (used < n && m->matched < m->delimiter_len &&
	       p[used] == (uint8_t)m->delimiter[m->matched]) {
		m->matched++;
		used++;
	}
	if (m->matched < m->delimiter_len && used < n) {
		*ret = data_event(m, m->delimiter, m->matched);
		m->matched = 0;
	}
	return used;
}

static size_t read_data(struct multipart *m, const uint8_t *p, size_t n, enum multipart_event *ret)
{
	if (m->matched == m->delimiter_len) {
		*ret = m->state == STATE_PREAMBLE ? MULTIPART_MORE : MULTIPART_PART_END;
		m->state = STATE_AFTER;
		m->matched = 0;
		return 0;
	}
	if (m->matched)
		return resume_match(m, p, n, ret);
	size_t at = find_delimiter(m, p, n);
	if (at > 0) {
		*ret = data_event(m, p, at);
		return at;
	}
	m->matched = n < m->delimiter_len ? n : m->delimiter_len;
	return m->matched;
}

/* Behind a boundary: white space, then CR LF for a part or "--" for the end. */
static ssize_t read_after(struct multipart *m, const uint8_t *p, enum multipart_event *ret)
{
	static const char closing[] = "--";
	static const char line_end[] = "\r\n";
	char c = (char)*p;
	if (m->head.len == 0 && (c == ' ' || c == '\t'))
		return 1;
	int r = buf_append(&m->head, p, 1);
	if (r < 0)
		return r;
	bool closes = memcmp(m->head.data, closing, m->head.len) == 0;
	bool begins = memcmp(m->head.data, line_end, m->head.len) == 0;
	if (!closes && !begins)
		return -EBADMSG;
	if (m->head.len == 2) {
		buf_consume(&m->head, 2);
		m->state = closes ? STATE_END : STATE_HEAD;
		if (closes)
			*ret = MULTIPART_END;
	}
	return 1;
}

static int read_disposition(struct multipart *m, const char *value)
{
	size_t n = strcspn(value, "; \t");
	if (n != strlen("form-data") || strncasecmp(value, "form-data", n) != 0)
		return -EBADMSG;
	int r = find_parameter(value, "name", &m->name);
	if (r == 0)
		r = find_parameter(value, "filename", &m->filename);
	if (r == 0 && m->filename)
		unescape(m->filename);
	return r;
}

/* Reads the lines of a whole head, "Name: value CR LF" each. */
static int read_head_lines(struct multipart *m, char *text)
{
	static const char wanted[] = "content-disposition:";
	free(m->name);
	free(m->filename);
	m->name = m->filename = NULL;
	bool found = false;
	for (char *line = text, *end; *line; line = end + 2) {
		end = strstr(line, "\r\n");
		*end = '\0';
		if (!strchr(line, ':') || *line == ' ' || *line == '\t' || strpbrk(line, "\r\n"))
			return -EBADMSG;
		if (strncasecmp(line, wanted, sizeof(wanted) - 1) != 0)
			continue;
		if (found)
			return -EBADMSG;
		found = true;
		line += sizeof(wanted) - 1;
		int r = read_disposition(m, line + strspn(line, " \t"));
		if (r < 0)
			return r;
	}
	return found ? 0 : -EBADMSG;
}

static bool head_ends(const struct buf *head)
{
	const uint8_t *end = head->data + head->len;
	return (head->len == 2 && memcmp(end - 2, "\r\n", 2) == 0) ||
	       (head->len >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0);
}

static ssize_t read_head(struct multipart *m, const uint8_t *p, size_t n, enum multipart_event *ret)
{
	const uint8_t *lf = memchr(p, '\n', n);
	size_t used = lf ? (size_t)(lf - p) + 1 : n;
	int r = buf_append(&m->head, p, used);
	if (r < 0)
		return r == -EMSGSIZE ? -EBADMSG : r;
	if (!lf || !head_ends(&m->head))
		return (ssize_t)used;

	m->head.len -= 2; /* the empty line */
	bool has_nul = memchr(m->head.data, '\0', m->head.len);
	auto_free char *text = buf_take_str(&m->head);
	if (!text)
		return -ENOMEM;
	r = has_nul ? -EBADMSG : read_head_lines(m, text);
	if (r < 0)
		return r;
	m->state = STATE_DATA;
	*ret = MULTIPART_PART;
	return (ssize_t)used;
}

ssize_t multipart_read(struct multipart *m, const uint8_t *p, size_t n, enum multipart_event *ret)
{
	size_t used = 0;
	*ret = MULTIPART_MORE;
	while (*ret == MULTIPART_MORE && (used < n || m->matched == m->delimiter_len)) {
		ssize_t r = 0;
		switch ((enum state)m->state) {
		case STATE_PREAMBLE:
		case STATE_DATA:
			r = (ssize_t)read_data(m, p + used, n - used, ret);
			break;
		case STATE_AFTER:
			r = read_after(m, p + used, ret);
			break;
		case STATE_HEAD:
			r = read_head(m, p + used, n - used, ret);
			break;
		case STATE_END:
			*ret = MULTIPART_END;
			r = (ssize_t)(n - used);
			break;
		}
		if (r < 0)
			return r;
		used += (size_t)r;
	}
	return (ssize_t)used;
}

bool multipart_complete(const struct multipart *m)
{
	return m->state == STATE_END;
}
