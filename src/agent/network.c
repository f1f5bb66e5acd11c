/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and the route by the old socket ioctls: IPv4 on one interface needs no netlink. */
#include "agent/network.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/ether.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/str.h"

static void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

/* The first interface that is not the loopback. 1, 0 when there is none, -errno. */
static int find_interface(char name[IFNAMSIZ])
{
	__attribute__((cleanup(cleanup_dir))) DIR *dir = opendir("/sys/class/net");
	struct dirent *d;
	if (!dir)
		return -errno;
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.' || str_eq(d->d_name, "lo") || strlen(d->d_name) >= IFNAMSIZ)
			continue;
		strcpy(name, d->d_name);
		return 1;
	}
	return 0;
}

int network_present(void)
{
	char name[IFNAMSIZ];
	return find_interface(name);
}

static struct ifreq request(const char *name)
{
	struct ifreq req = {0};
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	return req;
}

static void set_address(struct sockaddr *to, const char *ip)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	inet_pton(AF_INET, ip, &in.sin_addr);
	memcpy(to, &in, sizeof(in));
}

static int up(int fd, const char *name)
{
	struct ifreq req = request(name);
	if (ioctl(fd, SIOCGIFFLAGS, &req) < 0)
		return -errno;
	req.ifr_flags |= IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &req) < 0 ? -errno : 0;
}

static int rename_interface(int fd, const char *from)
{
	struct ifreq req = request(from);
	if (str_eq(from, GUEST_INTERFACE))
		return 0;
	strcpy(req.ifr_newname, GUEST_INTERFACE);
	return ioctl(fd, SIOCSIFNAME, &req) < 0 ? -errno : 0;
}

static int address(int fd)
{
	struct ifreq req = request(GUEST_INTERFACE);
	set_address(&req.ifr_addr, GUEST_ADDRESS);
	if (ioctl(fd, SIOCSIFADDR, &req) < 0)
		return -errno;
	struct sockaddr_in mask = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(~0u << (32 - GUEST_PREFIX_LEN)),
	};
	memcpy(&req.ifr_netmask, &mask, sizeof(mask));
	return ioctl(fd, SIOCSIFNETMASK, &req) < 0 ? -errno : 0;
}

static int route(int fd)
{
	char device[] = GUEST_INTERFACE;
	struct rtentry entry = {.rt_flags = RTF_UP | RTF_GATEWAY, .rt_dev = device};
	set_address(&entry.rt_dst, "0.0.0.0");
	set_address(&entry.rt_genmask, "0.0.0.0");
	set_address(&entry.rt_gateway, GUEST_GATEWAY);
	return ioctl(fd, SIOCADDRT, &entry) < 0 ? -errno : 0;
}

/* The gateway is always the same one: no packet waits for an answer to who has its address. */
static int neighbour(int fd)
{
	struct ether_addr mac;
	struct arpreq req = {.arp_flags = ATF_PERM | ATF_COM, .arp_dev = GUEST_INTERFACE};
	set_address(&req.arp_pa, GUEST_GATEWAY);
	req.arp_ha.sa_family = ARPHRD_ETHER;
	ether_aton_r(GUEST_GATEWAY_MAC, &mac);
	memcpy(req.arp_ha.sa_data, &mac, sizeof(mac));
	return ioctl(fd, SIOCSARP, &req) < 0 ? -errno : 0;
}

/* The slot drops it, so there is nobody to be found. */
static void without_ipv6(void)
{
	auto_fd int fd = open("/proc/sys/net/ipv6/conf/" GUEST_INTERFACE "/disable_ipv6",
			      O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)fd_write_all(fd, "1", 1); /* a kernel without IPv6 has no such file */
}

int network_up(struct err *e)
{
	char name[IFNAMSIZ];
	auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, errno, "socket");
	int r = find_interface(name);
	if (r <= 0)
		return err_set(e, ENODEV, "there is no network interface");
	r = up(fd, "lo");
	if (r == 0)
		r = rename_interface(fd, name);
	if (r == 0)
		r = address(fd);
	if (r == 0)
		without_ipv6();
	if (r == 0)
		r = up(fd, GUEST_INTERFACE);
	if (r == 0)
		r = route(fd);
	if (r == 0)
		r = neighbour(fd);
	return r < 0 ? err_sys(e, -r, "network interface %s", name) : 0;
}
