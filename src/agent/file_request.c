/* SPDX-License-Identifier: Apache-2.0 */
/* Reads ?path=…&username=… */
#include "agent/file_request.h"

#include <errno.h>

#include "agent/path.h"
#include "base/cleanup.h"

bool file_request_read(struct agent *a, struct http_exchange *x, struct file_request *ret)
{
	const char *target = http_exchange_head(x)->target;
	struct file_request req = {0};
	struct err e = {0};
	auto_free char *name = NULL;
	if (http_query_get(target, "username", &name) < 0 ||
	    http_query_get(target, "path", &req.query) < 0) {
		free(req.query);
		http_exchange_reply_error(x, 400, "the query is malformed");
		return false;
	}
	int r = agent_user(a, name, &req.user);
	if (r == -ENOENT)
		http_exchange_reply_error(x, 401, "invalid username: '%s'", name ? name : "");
	else if (r < 0)
		http_exchange_reply_error(x, 500, "can't read the users");
	else if (path_resolve(req.query ? req.query : "", req.user.home, a->settings.workdir,
			      &req.path, &e) < 0)
		http_exchange_reply_error(x, 400, "%s", e.text);
	if (!req.path) {
		file_request_done(&req);
		return false;
	}
	*ret = req;
	return true;
}

void file_request_done(struct file_request *r)
{
	user_done(&r->user);
	free(r->query);
	free(r->path);
	*r = (struct file_request){0};
}

unsigned file_request_status(int error)
{
	switch (error) {
	case ENOSPC:
	case EDQUOT:
		return 507;
	case ENOENT:
		return 404;
	case EACCES:
	case EPERM:
	case EROFS:
		return 403;
	case EISDIR:
	case ENOTDIR:
	case ENAMETOOLONG:
	case EINVAL:
	case EEXIST:
	case ELOOP:
	case ETXTBSY:
	case ENXIO:
	case EFBIG:
		return 400;
	default:
		return 500;
	}
}
