/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots for real, as root. The guest is a kernel's own IP stack in another namespace, whose frames
 * a child process carries over, as a VMM would.
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <libmnl/libmnl.h>
#include <net/if.h>
#include <net/route.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <linux/if_tun.h>
#include <linux/net_namespace.h>
#include <linux/netfilter_ipv4.h>
#include <linux/rtnetlink.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/guest.h"
#include "base/str.h"
#include "net/address.h"
#include "net_frame.h"
#include "net_slot_fixture.h"

struct stack {
	struct slot slot;
	int guest_fd; /* the guest's namespace */
	pid_t carrier;
};

static void carry(int from, int to)
{
	uint8_t bytes[VNET_HEADER + 65536];
	ssize_t n = read(from, bytes, sizeof(bytes));
	if (n > 0 && write(to, bytes, (size_t)n) < 0 && errno != EAGAIN && errno != EINVAL)
		_exit(1);
}

static void carry_frames(int a, int b)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	struct pollfd p[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
	while (poll(p, 2, -1) > 0) {
		if (p[0].revents)
			carry(a, b);
		if (p[1].revents)
			carry(b, a);
	}
	_exit(0);
}

static void guest_ioctl(int fd, unsigned long what, struct ifreq *ifr)
{
	if (ioctl(fd, what, ifr) < 0)
		fail_msg("ioctl %lx: %s", what, strerror(errno));
}

static struct sockaddr ipv4_sockaddr(const char *dotted)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	struct sockaddr sa;
	inet_pton(AF_INET, dotted, &sin.sin_addr);
	memcpy(&sa, &sin, sizeof(sa));
	return sa;
}

/* As the agent does it: MAC, address, up, default route. The thread is in the guest's namespace. */
static int guest_interface(void)
{
	int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	struct ifreq ifr = {.ifr_name = GUEST_INTERFACE};
	ifr.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
	guest_ioctl(tap, TUNSETIFF, &ifr);

	auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ifr.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(ifr.ifr_hwaddr.sa_data, guest_mac, 6);
	guest_ioctl(fd, SIOCSIFHWADDR, &ifr);
	ifr.ifr_addr = ipv4_sockaddr(GUEST_ADDRESS);
	guest_ioctl(fd, SIOCSIFADDR, &ifr);
	ifr.ifr_netmask = ipv4_sockaddr("255.255.255.252");
	guest_ioctl(fd, SIOCSIFNETMASK, &ifr);
	ifr.ifr_flags = IFF_UP;
	guest_ioctl(fd, SIOCSIFFLAGS, &ifr);
	struct rtentry route = {
		.rt_dst = ipv4_sockaddr("0.0.0.0"),
		.rt_genmask = ipv4_sockaddr("0.0.0.0"),
		.rt_gateway = ipv4_sockaddr(GUEST_GATEWAY),
		.rt_flags = RTF_UP | RTF_GATEWAY,
	};
	if (ioctl(fd, SIOCADDRT, &route) < 0)
		fail_msg("SIOCADDRT: %s", strerror(errno));
	return tap;
}

static int stack_open(void **state)
{
	if (unable())
		return 0;
	struct stack *t = calloc(1, sizeof(*t));
	open_slot(&t->slot);
	t->guest_fd = make_netns();
	int home = visit(t->guest_fd);
	auto_fd int tap = guest_interface();
	leave(home);
	t->carrier = fork();
	if (t->carrier == 0) {
		close(t->slot.tcp_fd);
		close(t->slot.dns_udp_fd);
		close(t->slot.dns_tcp_fd);
		carry_frames(tap, t->slot.tap_fd);
	}
	*state = t;
	return 0;
}

static int stack_close(void **state)
{
	struct stack *t = *state;
	if (!t)
		return 0;
	kill(t->carrier, SIGKILL);
	waitpid(t->carrier, NULL, 0);
	close(t->guest_fd);
	slot_close(&t->slot);
	free(t);
	return 0;
}

static int guest_socket(const struct stack *t, int type)
{
	int home = visit(t->guest_fd);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	leave(home);
	struct timeval tv = {.tv_sec = DEADLINE_MS / 1000};
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)), 0);
	return fd;
}

/* 0 or -errno. */
static int dial(int fd, const char *dotted, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, dotted, &sin.sin_addr);
	return connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 ? -errno : 0;
}

static int accept_one(int listener)
{
	if (!readable(listener, DEADLINE_MS))
		fail_msg("no connection");
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void assert_original(int fd, const char *dotted, uint16_t port)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	char text[INET_ADDRSTRLEN];
	assert_int_equal(getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &sin, &len), 0);
	assert_string_equal(inet_ntop(AF_INET, &sin.sin_addr, text, sizeof(text)), dotted);
	assert_int_equal(ntohs(sin.sin_port), port);
}

static void assert_talk(int a, int b)
{
	char text[8] = "";
	assert_int_equal(send(a, "ping", 5, MSG_NOSIGNAL), 5);
	assert_true(readable(b, DEADLINE_MS));
	assert_int_equal(recv(b, text, sizeof(text), 0), 5);
	assert_string_equal(text, "ping");
}

static void every_tcp_port_comes_to_the_gateway(void **state)
{
	need_root();
	struct stack *t = *state;
	static const struct {
		const char *to;
		uint16_t port;
	} targets[] = {{"1.2.3.4", 443},
		       {"198.18.0.1", 80},
		       {"169.254.169.254", 80},
		       {"10.0.0.1", 22},
		       {"8.8.8.8", 853},
		       {GUEST_GATEWAY, 22},
		       {GUEST_GATEWAY, GUEST_AGENT_PORT},
		       {GUEST_GATEWAY, 65535}};
	for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
		auto_fd int guest = guest_socket(t, SOCK_STREAM);
		assert_int_equal(dial(guest, targets[i].to, targets[i].port), 0);
		auto_fd int gateway = accept_one(t->slot.tcp_fd);
		assert_original(gateway, targets[i].to, targets[i].port);
		assert_talk(guest, gateway);
		assert_talk(gateway, guest);
	}
}

/* As for a gateway that takes the place of a dead one, whose connections linger. */
static void the_next_gateway_gets_sockets_of_its_own(void **state)
{
	need_root();
	struct stack *t = *state;
	struct err e;
	auto_fd int old = dup(t->slot.tcp_fd);
	assert_int_equal(slot_listen(&t->slot, &e), -EADDRINUSE);
	assert_int_equal(t->slot.tcp_fd, -1);
	close(take_fd(old));
	int gateway[3][2];
	for (int i = 0; i < 3; i++) {
		if (slot_listen(&t->slot, &e) < 0)
			fail_msg("%d: %s", i, e.text);
		auto_fd int web = guest_socket(t, SOCK_STREAM), dns = guest_socket(t, SOCK_STREAM);
		assert_int_equal(dial(web, "1.2.3.4", 443), 0);
		assert_int_equal(dial(dns, "8.8.8.8", 53), 0);
		gateway[i][0] = accept_one(t->slot.tcp_fd);
		gateway[i][1] = accept_one(t->slot.dns_tcp_fd);
		assert_original(gateway[i][0], "1.2.3.4", 443);
		assert_talk(web, gateway[i][0]);
		assert_talk(dns, gateway[i][1]);
	}
	for (int i = 0; i < 3; i++) {
		close(gateway[i][0]);
		close(gateway[i][1]);
	}
}

static void one_source_port_reaches_three_destinations(void **state)
{
	need_root();
	struct stack *t = *state;
	static const char *const targets[] = {"1.1.1.1", "2.2.2.2", "2.2.2.2"};
	static const uint16_t ports[] = {443, 443, 8443};
	int guest[3], gateway[3];
	for (size_t i = 0; i < 3; i++) {
		struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(40404)};
		guest[i] = guest_socket(t, SOCK_STREAM);
		setsockopt(guest[i], SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
		assert_int_equal(bind(guest[i], (struct sockaddr *)&sin, sizeof(sin)), 0);
		assert_int_equal(dial(guest[i], targets[i], ports[i]), 0);
		gateway[i] = accept_one(t->slot.tcp_fd);
		assert_original(gateway[i], targets[i], ports[i]);
	}
	for (size_t i = 0; i < 3; i++) {
		assert_talk(guest[i], gateway[i]);
		assert_talk(gateway[i], guest[i]);
		close(guest[i]);
		close(gateway[i]);
	}
}

static void dns_to_any_server_comes_to_the_gateway_and_back(void **state)
{
	need_root();
	struct stack *t = *state;
	static const char *const servers[] = {"8.8.8.8", GUEST_GATEWAY, "169.254.169.253"};
	for (size_t i = 0; i < 3; i++) {
		auto_fd int guest = guest_socket(t, SOCK_DGRAM);
		assert_int_equal(dial(guest, servers[i], 53), 0);
		assert_int_equal(send(guest, "question", 8, 0), 8);
		char text[16];
		struct sockaddr_in from;
		socklen_t len = sizeof(from);
		assert_true(readable(t->slot.dns_udp_fd, DEADLINE_MS));
		assert_int_equal(recvfrom(t->slot.dns_udp_fd, text, sizeof(text), 0,
					  (struct sockaddr *)&from, &len),
				 8);
		assert_int_equal(from.sin_addr.s_addr, inet_addr(GUEST_ADDRESS));
		assert_int_equal(
			sendto(t->slot.dns_udp_fd, "answer", 6, 0, (struct sockaddr *)&from, len),
			6);
		/* A connected socket takes answers from its server alone. */
		assert_int_equal(recv(guest, text, sizeof(text), 0), 6);

		assert_int_equal(send(guest, "again", 5, 0), 5);
		assert_true(readable(t->slot.dns_udp_fd, DEADLINE_MS));
		assert_int_equal(recv(t->slot.dns_udp_fd, text, sizeof(text), 0), 5);

		auto_fd int stream = guest_socket(t, SOCK_STREAM);
		assert_int_equal(dial(stream, servers[i], 53), 0);
		auto_fd int gateway = accept_one(t->slot.dns_tcp_fd);
		assert_original(gateway, servers[i], 53);
		assert_talk(stream, gateway);
	}
	assert_false(readable(t->slot.tcp_fd, 0));
}

/* musl asks all its servers from one socket at once. */
static void one_socket_asks_two_servers(void **state)
{
	need_root();
	struct stack *t = *state;
	static const char *const servers[] = {"8.8.8.8", "1.1.1.1"};
	auto_fd int guest = guest_socket(t, SOCK_DGRAM);
	for (size_t i = 0; i < 2; i++) {
		struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(53)};
		inet_pton(AF_INET, servers[i], &sin.sin_addr);
		assert_int_equal(
			sendto(guest, servers[i], 8, 0, (struct sockaddr *)&sin, sizeof(sin)), 8);
	}
	for (size_t i = 0; i < 2; i++) {
		char text[8];
		struct sockaddr_in from;
		socklen_t len = sizeof(from);
		assert_true(readable(t->slot.dns_udp_fd, DEADLINE_MS));
		assert_int_equal(
			recvfrom(t->slot.dns_udp_fd, text, 8, 0, (struct sockaddr *)&from, &len),
			8);
		assert_int_equal(
			sendto(t->slot.dns_udp_fd, text, 8, 0, (struct sockaddr *)&from, len), 8);
	}
	for (size_t i = 0; i < 2; i++) {
		char text[9] = "", from_text[INET_ADDRSTRLEN];
		struct sockaddr_in from;
		socklen_t len = sizeof(from);
		assert_int_equal(recvfrom(guest, text, 8, 0, (struct sockaddr *)&from, &len), 8);
		inet_ntop(AF_INET, &from.sin_addr, from_text, sizeof(from_text));
		assert_string_equal(from_text, text); /* each server answers what it was asked */
		assert_int_equal(ntohs(from.sin_port), 53);
	}
}

static void the_gateways_own_ports_are_refused(void **state)
{
	need_root();
	struct stack *t = *state;
	static const uint16_t ports[] = {SLOT_TCP_PORT, SLOT_DNS_PORT};
	for (size_t i = 0; i < 2; i++) {
		auto_fd int guest = guest_socket(t, SOCK_STREAM);
		assert_int_equal(dial(guest, GUEST_GATEWAY, ports[i]), -ECONNREFUSED);
	}
	assert_false(readable(t->slot.dns_tcp_fd, 0));
	assert_false(readable(t->slot.tcp_fd, 0));
}

static void quic_fails_at_once(void **state)
{
	need_root();
	struct stack *t = *state;
	auto_fd int guest = guest_socket(t, SOCK_DGRAM);
	char c;
	assert_int_equal(dial(guest, "1.2.3.4", 443), 0);
	assert_int_equal(send(guest, "x", 1, 0), 1);
	uint64_t start = clock_mono_ms();
	assert_int_equal(recv(guest, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNREFUSED);
	assert_true(clock_mono_ms() - start < 1000);
}

static void services_of_the_host_are_out_of_reach(void **state)
{
	need_root();
	struct stack *t = *state;
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	auto_fd int service = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(service, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(service, 8), 0);
	assert_int_equal(getsockname(service, (struct sockaddr *)&sin, &len), 0);

	struct ifaddrs *list;
	assert_int_equal(getifaddrs(&list), 0);
	for (struct ifaddrs *i = list; i; i = i->ifa_next) {
		char text[INET_ADDRSTRLEN];
		struct address a;
		uint16_t port;
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
			continue;
		address_from_sockaddr(i->ifa_addr, &a, &port);
		inet_ntop(AF_INET, a.bytes, text, sizeof(text));
		if (a.bytes[0] == 127 || str_eq(text, GUEST_ADDRESS)) /* the guest's own */
			continue;
		auto_fd int guest = guest_socket(t, SOCK_STREAM);
		assert_int_equal(dial(guest, text, ntohs(sin.sin_port)), 0);
		auto_fd int gateway = accept_one(t->slot.tcp_fd);
		assert_original(gateway, text, ntohs(sin.sin_port));
	}
	freeifaddrs(list);
	auto_fd int guest = guest_socket(t, SOCK_STREAM);
	assert_int_equal(dial(guest, GUEST_GATEWAY, ntohs(sin.sin_port)), 0);
	auto_fd int gateway = accept_one(t->slot.tcp_fd);
	assert_original(gateway, GUEST_GATEWAY, ntohs(sin.sin_port));
	assert_false(readable(service, 0));
}

static void the_agent_is_reached_from_outside(void **state)
{
	need_root();
	struct stack *t = *state;
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(GUEST_AGENT_PORT)};
	auto_fd int agent = guest_socket(t, SOCK_STREAM);
	assert_int_equal(bind(agent, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(agent, 8), 0);
	int fd;
	assert_int_equal(slot_connect(&t->slot, GUEST_AGENT_PORT, &fd), 0);
	auto_fd int outside = fd;
	auto_fd int inside = accept_one(agent);
	assert_talk(outside, inside);
	assert_talk(inside, outside);
}

static void a_closed_port_of_the_guest_refuses(void **state)
{
	need_root();
	struct stack *t = *state;
	int fd, error = 0;
	socklen_t len = sizeof(error);
	assert_int_equal(slot_connect(&t->slot, 1, &fd), 0);
	auto_fd int outside = fd;
	assert_true(readable(outside, DEADLINE_MS));
	assert_int_equal(getsockopt(outside, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	assert_int_equal(error, ECONNREFUSED);
}

static ino_t own_netns_inode(void)
{
	struct stat st;
	assert_int_equal(stat("/proc/thread-self/ns/net", &st), 0);
	return st.st_ino;
}

static unsigned open_fds(void)
{
	unsigned count = 0;
	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void opening_leaves_the_caller_at_home(void **state)
{
	need_root();
	(void)state;
	ino_t home = own_netns_inode();
	struct slot s;
	open_slot(&s);
	assert_int_equal(own_netns_inode(), home);
	struct stat st;
	assert_int_equal(fstat(s.netns_fd, &st), 0);
	assert_true(st.st_ino != home);
	slot_close(&s);
}

static void failing_to_open_leaves_nothing_behind(void **state)
{
	need_root();
	(void)state;
	ino_t home = own_netns_inode();
	unsigned before = open_fds(), failures = 0;
	struct rlimit old, limit;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (rlim_t room = 0; room < 16; room++) {
		struct slot s = {-7, -7, -7, -7, -7};
		struct err e = {0};
		limit = old;
		limit.rlim_cur = before + room;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		int r = slot_open(&s, &e);
		setrlimit(RLIMIT_NOFILE, &old);
		assert_int_equal(own_netns_inode(), home);
		if (r == 0) {
			slot_close(&s);
		} else {
			failures++;
			assert_int_equal(s.netns_fd, -7);
			assert_int_equal(r, -e.code);
			assert_non_null(strstr(e.text, "network slot: "));
		}
		assert_int_equal(open_fds(), before);
	}
	assert_in_range(failures, 3, 15); /* inherited descriptors leave gaps */
}

/* libnftables waits with select(). */
static void a_process_with_many_descriptors_opens_slots(void **state)
{
	need_root();
	(void)state;
	struct rlimit old, limit;
	struct stat before, after;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	if (old.rlim_max < FD_SETSIZE + 64)
		skip();
	limit = (struct rlimit){old.rlim_max, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(fstat(STDIN_FILENO, &before), 0);
	int first = dup(STDERR_FILENO), last = first;
	while (last < FD_SETSIZE + 8)
		assert_true((last = dup(STDERR_FILENO)) >= 0);
	struct slot s;
	struct slot_counters counters;
	open_slot(&s);
	assert_int_equal(slot_counters(&s, &counters, NULL), 0);
	slot_close(&s);
	close_range((unsigned)first, (unsigned)last, 0);
	assert_int_equal(fstat(STDIN_FILENO, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	setrlimit(RLIMIT_NOFILE, &old);
}

/* Opens and closes a file until told to stop; notes when a descriptor became another thing. */
struct opener {
	atomic_bool stop;
	atomic_uint opened, lost;
	ino_t inode;
};

static void *open_and_close(void *arg)
{
	struct opener *o = arg;
	while (!o->stop) {
		int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		struct stat st;
		for (int i = 0; i < 20; i++)
			if (fstat(fd, &st) < 0 || st.st_ino != o->inode)
				o->lost++;
		close(fd);
		o->opened++;
	}
	return NULL;
}

/* Workers of the same process write files meanwhile. */
static void other_threads_keep_their_descriptors(void **state)
{
	need_root();
	(void)state;
	struct opener o = {0};
	struct stat exe, before, after;
	pthread_t thread;
	assert_int_equal(stat("/proc/self/exe", &exe), 0);
	assert_int_equal(fstat(STDIN_FILENO, &before), 0);
	o.inode = exe.st_ino;
	assert_int_equal(pthread_create(&thread, NULL, open_and_close, &o), 0);
	for (int i = 0; i < 50; i++) {
		struct slot s;
		struct slot_counters counters;
		open_slot(&s);
		assert_int_equal(slot_counters(&s, &counters, NULL), 0);
		slot_close(&s);
	}
	o.stop = true;
	pthread_join(thread, NULL);
	assert_int_not_equal(o.opened, 0);
	assert_int_equal(o.lost, 0);
	assert_int_equal(fstat(STDIN_FILENO, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
}

#define NAMESPACE_ID 7701

/* Names the namespace, so that the kernel announces its end. */
static void name_namespace(struct mnl_socket *nl, int netns_fd)
{
	char bytes[512];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(bytes);
	nlh->nlmsg_type = RTM_NEWNSID;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	nlh->nlmsg_seq = 1;
	mnl_nlmsg_put_extra_header(nlh, sizeof(struct rtgenmsg));
	mnl_attr_put_u32(nlh, NETNSA_FD, (uint32_t)netns_fd);
	mnl_attr_put_u32(nlh, NETNSA_NSID, NAMESPACE_ID);
	assert_true(mnl_socket_sendto(nl, nlh, nlh->nlmsg_len) > 0);
}

static int find_namespace(const struct nlattr *attr, void *found)
{
	if (mnl_attr_get_type(attr) == NETNSA_NSID && mnl_attr_get_u32(attr) == NAMESPACE_ID)
		*(bool *)found = true;
	return MNL_CB_OK;
}

static bool is_end_of_namespace(const char *bytes, ssize_t n)
{
	bool found = false;
	int left = (int)n;
	for (const struct nlmsghdr *nlh = (const void *)bytes; mnl_nlmsg_ok(nlh, left);
	     nlh = mnl_nlmsg_next(nlh, &left))
		if (nlh->nlmsg_type == RTM_DELNSID)
			mnl_attr_parse(nlh, sizeof(struct rtgenmsg), find_namespace, &found);
	return found;
}

static void a_closed_slot_is_gone(void **state)
{
	need_root();
	(void)state;
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	assert_non_null(nl);
	assert_int_equal(mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID), 0);
	assert_int_equal(mnl_socket_setsockopt(nl, NETLINK_ADD_MEMBERSHIP, &(int){RTNLGRP_NSID},
					       sizeof(int)),
			 0);
	struct slot s;
	open_slot(&s);
	name_namespace(nl, s.netns_fd);
	slot_close(&s);
	bool gone = false;
	while (!gone) {
		char bytes[8192];
		if (!readable(mnl_socket_get_fd(nl), DEADLINE_MS))
			fail_msg("the namespace is still there");
		ssize_t n = mnl_socket_recvfrom(nl, bytes, sizeof(bytes));
		assert_true(n > 0);
		gone = is_end_of_namespace(bytes, n);
	}
	mnl_socket_close(nl);
}

static void a_slot_may_be_closed_in_parts(void **state)
{
	need_root();
	(void)state;
	struct slot s;
	open_slot(&s);
	close(s.tap_fd);
	s.tap_fd = -1;
	slot_close(&s);
	assert_int_equal(s.netns_fd, -1);
	slot_close(&s);
}

#define stack_test(f) cmocka_unit_test_setup_teardown(f, stack_open, stack_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(every_tcp_port_comes_to_the_gateway),
		stack_test(the_next_gateway_gets_sockets_of_its_own),
		stack_test(one_source_port_reaches_three_destinations),
		stack_test(dns_to_any_server_comes_to_the_gateway_and_back),
		stack_test(one_socket_asks_two_servers),
		stack_test(the_gateways_own_ports_are_refused),
		stack_test(quic_fails_at_once),
		stack_test(services_of_the_host_are_out_of_reach),
		stack_test(the_agent_is_reached_from_outside),
		stack_test(a_closed_port_of_the_guest_refuses),
		cmocka_unit_test(opening_leaves_the_caller_at_home),
		cmocka_unit_test(failing_to_open_leaves_nothing_behind),
		cmocka_unit_test(a_process_with_many_descriptors_opens_slots),
		cmocka_unit_test(other_threads_keep_their_descriptors),
		cmocka_unit_test(a_closed_slot_is_gone),
		cmocka_unit_test(a_slot_may_be_closed_in_parts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
