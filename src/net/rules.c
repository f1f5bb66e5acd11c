/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. What the guest sends passes three places.
 *
 * Ingress of the device, before the host's IP stack: dropped is what no honest guest sends. What
 * passes is ARP for the gateway, and whole IPv4 packets without options, in unicast, from the
 * guest's MAC and address.
 *
 * Prerouting, before connection tracking: what is no TCP and no DNS is answered with an ICMP error,
 * so that clients don't wait (QUIC falls back to TCP at once).
 *
 * Behind connection tracking: new flows are bounded in number. TCP is handed to the gateway's
 * transparent sockets (tproxy); the route that makes every address local takes it there. It could
 * be a redirect, as DNS over UDP is, but then a guest's second connection from one source port
 * would become a duplicate of the first, which kernels as new as 6.1 give to the wrong socket. Let
 * in is only what was handed over or redirected. Out go answers, and connections to the guest.
 * Nothing is ever forwarded.
 */
#include "net/rules.h"

#include <errno.h>
#include <fcntl.h>
#include <nftables/libnftables.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/str.h"
#include "net/netns.h"
#include "net/tap.h"

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

/* Flows that one slot may have at a time. A flow takes some 300 bytes of the host's memory. */
#define TCP_FLOWS "4096"
#define UDP_FLOWS "2048"

/* clang-format off */
static const char slot_rules[] =
	"table netdev slot {\n"
	"	counter rejected {}\n"
	"	counter spoofed {}\n"
	"	counter ipv6 {}\n"
	"	counter fragments {}\n"
	"	chain guest {\n"
	"		type filter hook ingress device \"" TAP_NAME "\" priority -500; policy drop;\n"
	"		ether saddr != " GUEST_MAC " counter name spoofed drop\n"
	"		ether type arp arp operation request arp saddr ether " GUEST_MAC
			" arp saddr ip " GUEST_ADDRESS " arp daddr ip " GUEST_GATEWAY " accept\n"
	"		ether type ip6 counter name ipv6 drop\n"
	"		ether type != ip counter name rejected drop\n"
	"		ether daddr != " GUEST_GATEWAY_MAC " counter name rejected drop\n"
	"		ip saddr != " GUEST_ADDRESS " counter name spoofed drop\n"
	"		ip frag-off & 0x3fff != 0 counter name fragments drop\n"
	"		ip hdrlength != 5 counter name rejected drop\n"
	"		accept\n"
	"	}\n"
	"}\n"
	"table inet slot {\n"
	"	counter rejected {}\n"
	"	ct timeout tcp_flow { protocol tcp; l3proto ip;\n"
	"		policy = { syn_sent : 30, syn_recv : 30, established : 21600, time_wait : 10, close : 5 }\n"
	"	}\n"
	"	ct timeout udp_flow { protocol udp; l3proto ip;\n"
	"		policy = { unreplied : 10, replied : 10 }\n"
	"	}\n"
	"	chain protocols {\n"
	"		type filter hook prerouting priority raw; policy drop;\n"
	"		meta l4proto tcp accept\n"
	"		udp dport 53 accept\n"
	"		meta l4proto udp counter name rejected reject with icmp port-unreachable\n"
	"		counter name rejected reject with icmp admin-prohibited\n"
	"	}\n"
	"	chain hand_over {\n"
	"		tcp dport 53 tproxy ip to :" VALUE(SLOT_DNS_PORT) " meta mark set 1 accept\n"
	"		meta l4proto tcp tproxy ip to :" VALUE(SLOT_TCP_PORT) " meta mark set 1 accept\n"
	"		meta l4proto tcp counter name rejected reject with tcp reset\n"
	"	}\n"
	"	chain flows {\n"
	"		type filter hook prerouting priority mangle; policy drop;\n"
	"		ct direction reply ct state established accept\n"
	"		meta l4proto udp ct state established accept\n"
	"		ct state established goto hand_over\n"
	"		ct state != new drop\n"
	"		udp dport 53 ct count over " UDP_FLOWS " counter name rejected drop\n"
	"		udp dport 53 ct timeout set \"udp_flow\" accept\n"
	"		meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn"
			" counter name rejected reject with tcp reset\n"
	"		ip daddr " GUEST_GATEWAY " tcp dport { " VALUE(SLOT_TCP_PORT) ", " VALUE(SLOT_DNS_PORT) " }"
			" counter name rejected reject with tcp reset\n"
	"		meta l4proto tcp ct count over " TCP_FLOWS " counter name rejected reject with tcp reset\n"
	"		meta l4proto tcp ct timeout set \"tcp_flow\" goto hand_over\n"
	"	}\n"
	"	chain redirected {\n"
	"		type nat hook prerouting priority dstnat; policy accept;\n"
	"		udp dport 53 redirect to :" VALUE(SLOT_DNS_PORT) "\n"
	"	}\n"
	"	chain gateway {\n"
	"		type filter hook input priority filter; policy drop;\n"
	"		ct state established accept\n"
	"		ct status dnat accept\n"
	"		meta mark 1 accept\n"
	"	}\n"
	"	chain outgoing {\n"
	"		type filter hook output priority filter; policy drop;\n"
	"		ip daddr != " GUEST_ADDRESS " drop\n"
	"		ct state established,related accept\n"
	"		meta l4proto tcp ct state new accept\n"
	"		icmp type destination-unreachable accept\n"
	"	}\n"
	"	chain nowhere {\n"
	"		type filter hook forward priority filter; policy drop;\n"
	"	}\n"
	"}\n";
/* clang-format on */

static void cleanup_nft(struct nft_ctx **nft)
{
	if (*nft)
		nft_ctx_free(*nft);
}

/* libnftables exits the process when it gets no netlink socket, so try first whether there is one.
 */
static int try_netlink(struct err *e)
{
	auto_fd int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	return fd < 0 ? err_sys(e, errno, "open a netfilter netlink socket") : 0;
}

static struct nft_ctx *nft_open(struct err *e)
{
	if (try_netlink(e) < 0)
		return NULL;
	struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);
	if (!nft || nft_ctx_buffer_error(nft) || nft_ctx_buffer_output(nft)) {
		cleanup_nft(&nft);
		err_set(e, ENOMEM, "libnftables does not start");
		return NULL;
	}
	return nft;
}

static int nft_run(struct nft_ctx *nft, const char *command, struct err *e)
{
	if (nft_run_cmd_from_buffer(nft, command) == 0)
		return 0;
	const char *text = nft_ctx_get_error_buffer(nft);
	return err_set(e, EIO, "packet rules (are the kernel's nf_tables modules there?): %.*s",
		       (int)strcspn(text, "\n"), text);
}

/*
 * The kernel limits ICMP errors to one a second for each peer, which would make every seventh
 * refused packet a timeout, and to a number for the whole host, which one guest could use up. Where
 * /proc/sys is read-only the limits stay: slower, not less safe.
 */
static void answer_without_limit(void)
{
	auto_fd int fd = open("/proc/sys/net/ipv4/icmp_ratemask", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		fd_write_all(fd, "0", 1);
}

/* libnftables waits with select(), where a descriptor past FD_SETSIZE ends the process: what uses
 * it runs apart, with low numbers. */
static int load(void *unused, struct err *e)
{
	(void)unused;
	__attribute__((cleanup(cleanup_nft))) struct nft_ctx *nft = nft_open(e);
	return nft ? nft_run(nft, slot_rules, e) : -e->code;
}

int rules_load(struct err *e)
{
	answer_without_limit();
	return netns_run_apart(load, NULL, e);
}

static uint64_t *counter_named(struct slot_counters *c, const char *name)
{
	if (str_eq(name, "rejected"))
		return &c->rejected;
	if (str_eq(name, "spoofed"))
		return &c->spoofed;
	if (str_eq(name, "ipv6"))
		return &c->ipv6;
	return str_eq(name, "fragments") ? &c->fragments : NULL;
}

/* Sums up what libnftables lists as {"nftables": [{"counter": {"name", "packets", …}}, …]}. */
static int counters_add(const json_t *listing, struct slot_counters *c, struct err *e)
{
	size_t i;
	json_t *item;
	json_array_foreach(json_object_get(listing, "nftables"), i, item)
	{
		const json_t *counter = json_object_get(item, "counter");
		uint64_t packets = 0;
		if (!counter)
			continue;
		uint64_t *sum =
			counter_named(c, json_string_value(json_object_get(counter, "name")));
		int r = doc_want_uint(counter, "packets", 0, UINT64_MAX, &packets, e);
		if (r < 0)
			return r;
		if (sum)
			*sum += packets;
	}
	return 0;
}

static int list_counters(void *ret, struct err *e)
{
	__attribute__((cleanup(cleanup_nft))) struct nft_ctx *nft = nft_open(e);
	if (!nft)
		return -e->code;
	nft_ctx_output_set_flags(nft, NFT_CTX_OUTPUT_JSON);
	int r = nft_run(nft, "list counters", e);
	if (r < 0)
		return r;
	const char *text = nft_ctx_get_output_buffer(nft);
	auto_json json_t *listing = doc_parse_json(text, strlen(text), e);
	struct slot_counters c = {0};
	if (!listing)
		return err_prefix(e, "packet counters");
	r = counters_add(listing, &c, e);
	if (r < 0)
		return err_prefix(e, "packet counters");
	*(struct slot_counters *)ret = c;
	return 0;
}

int rules_counters(struct slot_counters *ret, struct err *e)
{
	return netns_run_apart(list_counters, ret, e);
}
