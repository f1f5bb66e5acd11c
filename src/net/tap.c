/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tap device by ioctl, its settings by route netlink. Settings of the interface are made with the
 * link itself, not through /proc/sys, which is read-only in containers. They harden; what holds the
 * guest are the rules.
 */
#include "net/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/ip.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "net/address.h"

int tap_open(int *ret_fd, struct err *e)
{
	auto_fd int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "open /dev/net/tun (is the tun module loaded?)");
	struct ifreq ifr = {.ifr_name = TAP_NAME};
	ifr.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_TUN_EXCL);
	if (ioctl(fd, TUNSETIFF, &ifr) < 0)
		return err_sys(e, errno, "make the tap device");
	*ret_fd = take_fd(fd);
	return 0;
}

struct route_netlink {
	struct mnl_socket *socket;
	unsigned seq;
	struct err *e;
};

#define MESSAGE_MAX 1024 /* bytes; ours have less than 200 */

static struct nlmsghdr *message(void *bytes, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(bytes);
	nlh->nlmsg_type = type;
	nlh->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
	return nlh;
}

/* Sends one request and reads the kernel's word on it: 0 or -errno. */
static int request(struct route_netlink *nl, struct nlmsghdr *nlh)
{
	char answer[8192];
	nlh->nlmsg_seq = ++nl->seq;
	if (mnl_socket_sendto(nl->socket, nlh, nlh->nlmsg_len) < 0)
		return -errno;
	int more = MNL_CB_OK;
	while (more > MNL_CB_STOP) {
		ssize_t n = mnl_socket_recvfrom(nl->socket, answer, sizeof(answer));
		if (n < 0)
			return -errno;
		more = mnl_cb_run(answer, (size_t)n, nl->seq, mnl_socket_get_portid(nl->socket),
				  NULL, NULL);
	}
	return more < 0 ? -errno : 0;
}

static struct ifinfomsg *link_message(struct nlmsghdr *nlh, unsigned ifindex)
{
	struct ifinfomsg *link = mnl_nlmsg_put_extra_header(nlh, sizeof(*link));
	link->ifi_index = (int)ifindex;
	return link;
}

static void put_ipv4_settings(struct nlmsghdr *nlh)
{
	static const struct {
		uint16_t id;
		uint32_t value;
	} settings[] = {
		{IPV4_DEVCONF_FORWARDING, 0},       {IPV4_DEVCONF_PROXY_ARP, 0},
		{IPV4_DEVCONF_ACCEPT_REDIRECTS, 0}, {IPV4_DEVCONF_SEND_REDIRECTS, 0},
		{IPV4_DEVCONF_ROUTE_LOCALNET, 0},   {IPV4_DEVCONF_ACCEPT_LOCAL, 0},
		{IPV4_DEVCONF_ARP_IGNORE, 1},       {IPV4_DEVCONF_ARP_ANNOUNCE, 2},
		{IPV4_DEVCONF_RP_FILTER, 1},
	};
	struct nlattr *families = mnl_attr_nest_start(nlh, IFLA_AF_SPEC);
	struct nlattr *inet = mnl_attr_nest_start(nlh, AF_INET);
	struct nlattr *conf = mnl_attr_nest_start(nlh, IFLA_INET_CONF);
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		mnl_attr_put_u32(nlh, settings[i].id, settings[i].value);
	mnl_attr_nest_end(nlh, conf);
	mnl_attr_nest_end(nlh, inet);
	mnl_attr_nest_end(nlh, families);
}

/* No IPv6 address of its own, so that the slot never says anything over IPv6. */
static int link_without_ipv6(struct route_netlink *nl, unsigned ifindex)
{
	char bytes[MESSAGE_MAX];
	struct nlmsghdr *nlh = message(bytes, RTM_SETLINK, 0);
	link_message(nlh, ifindex);
	struct nlattr *families = mnl_attr_nest_start(nlh, IFLA_AF_SPEC);
	struct nlattr *inet6 = mnl_attr_nest_start(nlh, AF_INET6);
	mnl_attr_put_u8(nlh, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
	mnl_attr_nest_end(nlh, inet6);
	mnl_attr_nest_end(nlh, families);
	int r = request(nl, nlh);
	if (r == -EAFNOSUPPORT) /* a kernel without IPv6 */
		return 0;
	return r < 0 ? err_sys(nl->e, -r, "turn IPv6 off on the tap device") : 0;
}

static int link_up(struct route_netlink *nl, unsigned ifindex)
{
	char bytes[MESSAGE_MAX];
	struct ether_addr mac;
	ether_aton_r(GUEST_GATEWAY_MAC, &mac);
	struct nlmsghdr *nlh = message(bytes, RTM_SETLINK, 0);
	struct ifinfomsg *link = link_message(nlh, ifindex);
	link->ifi_flags = link->ifi_change = IFF_UP;
	mnl_attr_put(nlh, IFLA_ADDRESS, sizeof(mac), &mac);
	put_ipv4_settings(nlh);
	int r = request(nl, nlh);
	return r < 0 ? err_sys(nl->e, -r, "set the tap device up") : 0;
}

static int link_address(struct route_netlink *nl, unsigned ifindex)
{
	char bytes[MESSAGE_MAX];
	struct address a;
	address_parse(GUEST_GATEWAY, &a);
	struct nlmsghdr *nlh = message(bytes, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
	struct ifaddrmsg *ifa = mnl_nlmsg_put_extra_header(nlh, sizeof(*ifa));
	ifa->ifa_family = AF_INET;
	ifa->ifa_prefixlen = GUEST_PREFIX_LEN;
	ifa->ifa_index = ifindex;
	mnl_attr_put(nlh, IFA_LOCAL, 4, a.bytes);
	mnl_attr_put(nlh, IFA_ADDRESS, 4, a.bytes);
	int r = request(nl, nlh);
	return r < 0 ? err_sys(nl->e, -r, "give the tap device its address") : 0;
}

/* Every address is the slot's own, except the guest's: what is not ours, we don't forward but
 * answer for. */
static int link_route(struct route_netlink *nl, unsigned ifindex)
{
	char bytes[MESSAGE_MAX];
	struct nlmsghdr *nlh = message(bytes, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
	struct rtmsg *rtm = mnl_nlmsg_put_extra_header(nlh, sizeof(*rtm));
	rtm->rtm_family = AF_INET;
	rtm->rtm_table = RT_TABLE_MAIN;
	rtm->rtm_protocol = RTPROT_STATIC;
	rtm->rtm_scope = RT_SCOPE_HOST;
	rtm->rtm_type = RTN_LOCAL;
	mnl_attr_put_u32(nlh, RTA_OIF, ifindex);
	int r = request(nl, nlh);
	return r < 0 ? err_sys(nl->e, -r, "route every address to the gateway") : 0;
}

/* A permanent entry: the slot never asks who the guest is, so that no one can answer wrongly. */
static int link_guest(struct route_netlink *nl, unsigned ifindex)
{
	char bytes[MESSAGE_MAX];
	struct address a;
	struct ether_addr mac;
	address_parse(GUEST_ADDRESS, &a);
	ether_aton_r(GUEST_MAC, &mac);
	struct nlmsghdr *nlh = message(bytes, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
	struct ndmsg *nd = mnl_nlmsg_put_extra_header(nlh, sizeof(*nd));
	nd->ndm_family = AF_INET;
	nd->ndm_ifindex = (int)ifindex;
	nd->ndm_state = NUD_PERMANENT;
	mnl_attr_put(nlh, NDA_DST, 4, a.bytes);
	mnl_attr_put(nlh, NDA_LLADDR, sizeof(mac), &mac);
	int r = request(nl, nlh);
	return r < 0 ? err_sys(nl->e, -r, "name the guest's MAC address") : 0;
}

static int set_up(struct route_netlink *nl)
{
	unsigned ifindex = if_nametoindex(TAP_NAME);
	if (!ifindex)
		return err_sys(nl->e, errno, "find the tap device");
	int r = link_without_ipv6(nl, ifindex);
	if (r == 0)
		r = link_address(nl, ifindex);
	if (r == 0)
		r = link_up(nl, ifindex);
	if (r == 0)
		r = link_route(nl, ifindex);
	return r == 0 ? link_guest(nl, ifindex) : r;
}

int tap_set_up(struct err *e)
{
	struct route_netlink nl = {.socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC), .e = e};
	if (!nl.socket)
		return err_sys(e, errno, "open a netlink socket");
	int r = mnl_socket_bind(nl.socket, 0, MNL_SOCKET_AUTOPID) < 0
			? err_sys(e, errno, "bind a netlink socket")
			: set_up(&nl);
	mnl_socket_close(nl.socket);
	return r;
}
