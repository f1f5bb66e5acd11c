/* SPDX-License-Identifier: Apache-2.0 */
/* A slot's life: the namespace, then the device while it is down, the rules, and only then the
 * device set up. */
#include "net/slot.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "net/address.h"
#include "net/netns.h"
#include "net/rules.h"
#include "net/tap.h"

#define BACKLOG 1024 /* connections that wait for the gateway to accept */

static void close_fd(int *fd)
{
	cleanup_fd(fd);
	*fd = -1;
}

static void close_listeners(struct slot *s)
{
	close_fd(&s->dns_tcp_fd);
	close_fd(&s->dns_udp_fd);
	close_fd(&s->tcp_fd);
}

void slot_close(struct slot *s)
{
	close_listeners(s);
	close_fd(&s->tap_fd);
	close_fd(&s->netns_fd);
}

/* A transparent listener accepts connections to any address, as whose owner it then answers. */
static int listen_transparently(int fd, const struct sockaddr *sa, socklen_t len)
{
	if (setsockopt(fd, SOL_IP, IP_TRANSPARENT, &(int){1}, sizeof(int)) < 0)
		return -errno;
	return bind(fd, sa, len) < 0 || listen(fd, BACKLOG) < 0 ? -errno : 0;
}

/* A non-blocking socket at the gateway's address; streams listen. The descriptor or -errno. */
static int gateway_socket(int type, uint16_t port, struct err *e)
{
	struct address a;
	struct sockaddr_storage ss;
	const struct sockaddr *sa = (const struct sockaddr *)&ss;
	socklen_t len;
	address_parse(GUEST_GATEWAY, &a);
	address_to_sockaddr(&a, port, &ss, &len);
	auto_fd int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r = fd < 0 ? -errno : 0;
	if (r == 0 && type == SOCK_STREAM)
		r = listen_transparently(fd, sa, len);
	else if (r == 0)
		r = bind(fd, sa, len) < 0 ? -errno : 0;
	if (r < 0)
		return err_sys(e, -r, "the gateway's socket on port %u", port);
	return take_fd(fd);
}

static int open_sockets(void *arg, struct err *e)
{
	struct slot *s = arg;
	if ((s->tcp_fd = gateway_socket(SOCK_STREAM, SLOT_TCP_PORT, e)) < 0)
		return s->tcp_fd;
	if ((s->dns_udp_fd = gateway_socket(SOCK_DGRAM, SLOT_DNS_PORT, e)) < 0)
		return s->dns_udp_fd;
	s->dns_tcp_fd = gateway_socket(SOCK_STREAM, SLOT_DNS_PORT, e);
	return s->dns_tcp_fd < 0 ? s->dns_tcp_fd : 0;
}

/* Fills a namespace that was just made. */
static int furnish(void *arg, struct err *e)
{
	struct slot *s = arg;
	int r = s->netns_fd = netns_own(e);
	if (r >= 0)
		r = tap_open(&s->tap_fd, e);
	if (r >= 0)
		r = rules_load(e);
	if (r >= 0)
		r = tap_set_up(e);
	return r < 0 ? r : open_sockets(s, e);
}

int slot_open(struct slot *ret, struct err *e)
{
	struct err ignored;
	e = e ? e : &ignored;
	struct slot s = {-1, -1, -1, -1, -1};
	int r = netns_run(NETNS_NEW, furnish, &s, e);
	if (r < 0) {
		slot_close(&s);
		return err_prefix(e, "network slot");
	}
	*ret = s;
	return 0;
}

int slot_listen(struct slot *s, struct err *e)
{
	struct err ignored;
	e = e ? e : &ignored;
	close_listeners(s);
	int r = netns_run(s->netns_fd, open_sockets, s, e);
	if (r < 0) {
		close_listeners(s);
		return err_prefix(e, "network slot");
	}
	return 0;
}

/* A guest can cut its own line. Who waits for it then learns so, in IDLE + PROBES * INTERVAL
 * seconds. */
static void notice_silence(int fd)
{
	static const int on = 1, idle_s = 15, interval_s = 5, probes = 3;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

static int open_client(void *ret_fd, struct err *e)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, errno, "a socket in the slot");
	*(int *)ret_fd = fd;
	return 0;
}

int slot_connect(const struct slot *s, uint16_t port, int *ret_fd)
{
	struct err e;
	int raw = -1;
	int r = netns_run(s->netns_fd, open_client, &raw, &e);
	if (r < 0)
		return r;
	auto_fd int fd = raw;

	notice_silence(fd);
	struct address a;
	struct sockaddr_storage sa;
	socklen_t len;
	address_parse(GUEST_ADDRESS, &a);
	address_to_sockaddr(&a, port, &sa, &len);
	if (connect(fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS)
		return -errno;
	*ret_fd = take_fd(fd);
	return 0;
}

static int count(void *ret, struct err *e)
{
	return rules_counters(ret, e);
}

int slot_counters(const struct slot *s, struct slot_counters *ret, struct err *e)
{
	struct err ignored;
	e = e ? e : &ignored;
	return netns_run(s->netns_fd, count, ret, e);
}
