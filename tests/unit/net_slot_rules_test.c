/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of a slot, for real, as root: the test is the guest, and writes and reads Ethernet
 * frames at the tap device.
 */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/cleanup.h"
#include "base/guest.h"
#include "net_frame.h"
#include "net_slot_fixture.h"

struct raw {
	struct slot slot;
};

static void send_frame(const struct raw *t, const struct frame *f)
{
	uint8_t bytes[VNET_HEADER + FRAME_MAX] = {0};
	memcpy(bytes + VNET_HEADER, f->bytes, f->n);
	ssize_t n = write(t->slot.tap_fd, bytes, VNET_HEADER + f->n);
	assert_int_equal(n, VNET_HEADER + f->n);
}

static struct frame receive_frame(const struct raw *t)
{
	uint8_t bytes[VNET_HEADER + FRAME_MAX];
	struct frame f = {.n = 0};
	if (!readable(t->slot.tap_fd, DEADLINE_MS))
		fail_msg("no frame from the slot");
	ssize_t n = read(t->slot.tap_fd, bytes, sizeof(bytes));
	assert_true(n > VNET_HEADER + 14);
	put(&f, bytes + VNET_HEADER, (size_t)n - VNET_HEADER);
	return f;
}

static unsigned get16(const struct frame *f, size_t at)
{
	assert_true(at + 2 <= f->n);
	return (unsigned)f->bytes[at] << 8 | f->bytes[at + 1];
}

static bool is_arp_reply(const struct frame *f)
{
	return get16(f, 12) == 0x0806 && get16(f, 20) == ARPOP_REPLY;
}

/*
 * What the slot answered to the frames sent so far, at most one frame: an ARP request goes behind
 * them, and frames are handled in order. Returns its count of bytes, 0 when there was none.
 */
static struct frame answer(const struct raw *t)
{
	struct frame arp = arp_frame(ARPOP_REQUEST, guest_mac, GUEST_ADDRESS, GUEST_GATEWAY);
	send_frame(t, &arp);
	struct frame first = receive_frame(t);
	if (is_arp_reply(&first))
		return (struct frame){.n = 0};
	struct frame second = receive_frame(t);
	assert_true(is_arp_reply(&second));
	return first;
}

static struct frame exchange(const struct raw *t, const struct frame *f)
{
	send_frame(t, f);
	return answer(t);
}

static struct slot_counters counters(const struct raw *t)
{
	struct slot_counters c;
	struct err e = {0};
	if (slot_counters(&t->slot, &c, &e) < 0)
		fail_msg("%s", e.text);
	return c;
}

static void assert_counted(const struct raw *t, uint64_t rejected, uint64_t spoofed, uint64_t ipv6,
			   uint64_t fragments)
{
	struct slot_counters c = counters(t);
	assert_int_equal(c.rejected, rejected);
	assert_int_equal(c.spoofed, spoofed);
	assert_int_equal(c.ipv6, ipv6);
	assert_int_equal(c.fragments, fragments);
}

/* An ICMP error of this type and code from the gateway. */
static void assert_icmp_error(const struct frame *f, unsigned type, unsigned code)
{
	assert_true(f->n >= 14 + 20 + 8 + 20);
	assert_int_equal(get16(f, 12), 0x0800);
	assert_int_equal(f->bytes[23], IPPROTO_ICMP);
	assert_memory_equal(f->bytes + 26, "\xc0\0\2\1", 4);
	assert_int_equal(f->bytes[34], type);
	assert_int_equal(f->bytes[35], code);
}

static int raw_open(void **state)
{
	if (unable())
		return 0;
	struct raw *t = calloc(1, sizeof(*t));
	open_slot(&t->slot);
	*state = t;
	return 0;
}

static int raw_close(void **state)
{
	struct raw *t = *state;
	if (t) {
		slot_close(&t->slot);
		free(t);
	}
	return 0;
}

static void arp_for_the_gateway_is_answered(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame ask = arp_frame(ARPOP_REQUEST, guest_mac, GUEST_ADDRESS, GUEST_GATEWAY);
	send_frame(t, &ask);
	struct frame reply = receive_frame(t);
	assert_true(is_arp_reply(&reply));
	assert_memory_equal(reply.bytes + 6, gateway_mac, 6);
	assert_memory_equal(reply.bytes + 22, gateway_mac, 6);
	assert_counted(t, 0, 0, 0, 0);
}

static void arp_for_others_is_not_answered(void **state)
{
	need_root();
	struct raw *t = *state;
	static const char *const targets[] = {"192.0.2.3", "192.0.2.2",       "10.0.0.1",
					      "127.0.0.1", "169.254.169.254", "0.0.0.0"};
	for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
		struct frame f = arp_frame(ARPOP_REQUEST, guest_mac, GUEST_ADDRESS, targets[i]);
		assert_int_equal(exchange(t, &f).n, 0);
	}
	assert_counted(t, 6, 0, 0, 0);
}

static void arp_that_lies_is_not_answered(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame f = arp_frame(ARPOP_REQUEST, guest_mac, "192.0.2.9", GUEST_GATEWAY);
	assert_int_equal(exchange(t, &f).n, 0);
	f = arp_frame(ARPOP_REQUEST, everyone, GUEST_ADDRESS, GUEST_GATEWAY);
	assert_int_equal(exchange(t, &f).n, 0);
	f = arp_frame(ARPOP_REPLY, guest_mac, GUEST_GATEWAY, GUEST_GATEWAY);
	assert_int_equal(exchange(t, &f).n, 0);
	assert_counted(t, 3, 0, 0, 0);
}

static void tcp_is_answered_in_the_name_of_its_destination(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame syn =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x02);
	struct frame f = exchange(t, &syn);
	assert_int_equal(f.bytes[23], IPPROTO_TCP);
	assert_memory_equal(f.bytes + 26, "\1\2\3\4", 4);
	assert_int_equal(get16(&f, 34), 443);
	assert_int_equal(f.bytes[47], 0x12); /* SYN, ACK */
}

static void tcp_in_the_middle_of_nothing_is_reset(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame ack =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x10);
	struct frame f = exchange(t, &ack);
	assert_int_equal(f.bytes[23], IPPROTO_TCP);
	assert_true(f.bytes[47] & 0x04);
	assert_nothing_delivered(&t->slot);
	assert_counted(t, 1, 0, 0, 0);
}

static void a_gateway_that_is_gone_resets(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame syn =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x02);
	close(t->slot.tcp_fd);
	t->slot.tcp_fd = -1;
	struct frame f = exchange(t, &syn);
	assert_int_equal(f.bytes[23], IPPROTO_TCP);
	assert_memory_equal(f.bytes + 26, "\1\2\3\4", 4);
	assert_true(f.bytes[47] & 0x04);
	assert_counted(t, 1, 0, 0, 0);
}

static int slot_socket(const struct raw *t, int type)
{
	int home = visit(t->slot.netns_fd);
	int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	leave(home);
	assert_true(fd >= 0);
	return fd;
}

static struct sockaddr_in ipv4_port(const char *dotted, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
	assert_int_equal(inet_pton(AF_INET, dotted, &sin.sin_addr), 1);
	return sin;
}

/* Even with the loopback up, which nobody sets up. */
static void from_inside_only_the_guest_is_reached(void **state)
{
	need_root();
	struct raw *t = *state;
	auto_fd int udp = slot_socket(t, SOCK_DGRAM);
	auto_fd int tcp = slot_socket(t, SOCK_STREAM);
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	assert_int_equal(ioctl(udp, SIOCSIFFLAGS, &lo), 0);
	assert_int_equal(setsockopt(udp, SOL_SOCKET, SO_BROADCAST, &(int){1}, sizeof(int)), 0);

	static const char *const targets[] = {GUEST_ADDRESS, GUEST_GATEWAY, "192.0.2.3",
					      "127.0.0.1",   "8.8.8.8",     "255.255.255.255"};
	for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
		struct sockaddr_in to = ipv4_port(targets[i], SLOT_DNS_PORT);
		assert_int_equal(sendto(udp, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)), -1);
		assert_true(errno == EPERM || errno == ENETUNREACH);
	}
	struct sockaddr_in to = ipv4_port("1.2.3.4", 443);
	assert_int_equal(connect(tcp, (struct sockaddr *)&to, sizeof(to)), -1);
	assert_int_equal(answer(t).n, 0);
	assert_nothing_delivered(&t->slot);
}

static void tcp_with_a_wrong_checksum_is_dropped_in_silence(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame f =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x10);
	f.bytes[50] ^= 1;
	assert_int_equal(exchange(t, &f).n, 0);
	assert_counted(t, 0, 0, 0, 0);
}

static void udp_to_other_ports_is_rejected(void **state)
{
	need_root();
	struct raw *t = *state;
	static const uint16_t ports[] = {443, 80, 123, 5353, 853, SLOT_DNS_PORT, 0, 65535};
	for (size_t i = 0; i < sizeof(ports) / sizeof(*ports); i++) {
		struct frame f = udp_frame((struct ipv4){GUEST_ADDRESS, "8.8.8.8", 0, 0, 0}, 50000,
					   ports[i], "x");
		struct frame a = exchange(t, &f);
		assert_icmp_error(&a, 3, 3);
	}
	struct frame f = udp_frame((struct ipv4){GUEST_ADDRESS, GUEST_GATEWAY, 0, 0, 0}, 53,
				   SLOT_DNS_PORT, "x");
	struct frame a = exchange(t, &f);
	assert_icmp_error(&a, 3, 3);
	assert_nothing_delivered(&t->slot);
	assert_counted(t, 9, 0, 0, 0);
}

static void ping_and_other_protocols_are_rejected(void **state)
{
	need_root();
	struct raw *t = *state;
	static const char *const targets[] = {GUEST_GATEWAY, "8.8.8.8", "169.254.169.254"};
	for (size_t i = 0; i < 3; i++) {
		struct frame f = icmp_frame((struct ipv4){GUEST_ADDRESS, targets[i], 0, 0, 0}, 8);
		struct frame a = exchange(t, &f);
		assert_icmp_error(&a, 3, 13);
	}
	static const uint8_t protocols[] = {0, 2, 4, 41, 47, 50, 132, 255};
	for (size_t i = 0; i < sizeof(protocols); i++) {
		struct frame f = {.n = 0};
		put_ethernet(&f, gateway_mac, guest_mac, 0x0800);
		put_ipv4(&f, (struct ipv4){GUEST_ADDRESS, "8.8.8.8", protocols[i], 0, 0}, 8);
		put(&f, "\0\0\0\0\0\0\0\0", 8);
		struct frame a = exchange(t, &f);
		assert_icmp_error(&a, 3, 13);
	}
	assert_counted(t, 11, 0, 0, 0);
}

static void icmp_errors_are_dropped_in_silence(void **state)
{
	need_root();
	struct raw *t = *state;
	static const unsigned types[] = {3, 4, 5, 11, 12};
	for (size_t i = 0; i < 5; i++) {
		struct frame f =
			icmp_frame((struct ipv4){GUEST_ADDRESS, GUEST_GATEWAY, 0, 0, 0}, types[i]);
		assert_int_equal(exchange(t, &f).n, 0);
	}
	assert_counted(t, 5, 0, 0, 0);
}

static void spoofed_addresses_are_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	static const char *const sources[] = {"192.0.2.3", "192.0.2.1", "127.0.0.1",
					      "0.0.0.0",   "8.8.8.8",   "255.255.255.255",
					      "224.0.0.1"};
	for (size_t i = 0; i < 7; i++) {
		struct ipv4 ip = {sources[i], "1.2.3.4", 0, 0, 0};
		struct frame f = tcp_frame(ip, 40000, 443, 0x02);
		assert_int_equal(exchange(t, &f).n, 0);
		f = udp_frame(ip, 40000, 53, "x");
		assert_int_equal(exchange(t, &f).n, 0);
	}
	struct frame f = udp_frame((struct ipv4){GUEST_ADDRESS, "8.8.8.8", 0, 0, 0}, 1, 53, "x");
	f.bytes[11] ^= 1; /* another MAC */
	assert_int_equal(exchange(t, &f).n, 0);
	assert_nothing_delivered(&t->slot);
	assert_counted(t, 0, 15, 0, 0);
}

static void fragments_are_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	static const unsigned fragments[] = {0x2000, 0x0001, 0x2001, 0x1fff};
	for (size_t i = 0; i < 4; i++) {
		struct ipv4 ip = {GUEST_ADDRESS, "8.8.8.8", 0, fragments[i], 0};
		struct frame f = udp_frame(ip, 40000, 53, "x");
		assert_int_equal(exchange(t, &f).n, 0);
		f = tcp_frame(ip, 40000, 443, 0x02);
		assert_int_equal(exchange(t, &f).n, 0);
	}
	assert_nothing_delivered(&t->slot);
	assert_counted(t, 0, 0, 0, 8);
}

static void dont_fragment_is_no_fragment(void **state)
{
	need_root();
	struct raw *t = *state;
	struct ipv4 ip = {GUEST_ADDRESS, "1.2.3.4", 0, 0x4000, 0};
	struct frame f = tcp_frame(ip, 40000, 443, 0x02);
	assert_true(exchange(t, &f).n > 0);
	assert_counted(t, 0, 0, 0, 0);
}

static void ip_options_are_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame f =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 8}, 40000, 443, 0x02);
	assert_int_equal(exchange(t, &f).n, 0);
	assert_counted(t, 1, 0, 0, 0);
}

/* An IPv6 packet from fe80::2 to fe80::1 with 8 bytes of UDP. */
static struct frame ipv6_frame(const uint8_t *to)
{
	struct frame f = {.n = 0};
	put_ethernet(&f, to, guest_mac, 0x86dd);
	put(&f, "\x60\0\0\0\0\x08\x11\x40", 8);
	put(&f, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
	put(&f, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
	put(&f, "\x9c\x40\0\x35\0\x08\0\0", 8);
	/* The pseudo-header: both addresses, the length, the protocol. */
	patch16(&f, 60, checksum(f.bytes + 22, 40, 8 + IPPROTO_UDP));
	return f;
}

static void ipv6_is_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame f = ipv6_frame(gateway_mac);
	assert_int_equal(exchange(t, &f).n, 0);
	f = ipv6_frame((const uint8_t *)"\x33\x33\0\0\0\1");
	assert_int_equal(exchange(t, &f).n, 0);
	f = ipv6_frame(everyone);
	assert_int_equal(exchange(t, &f).n, 0);
	assert_nothing_delivered(&t->slot);
	assert_counted(t, 0, 0, 3, 0);
}

static struct frame tagged(const struct frame *plain, const void *tag, size_t n)
{
	struct frame f = {.n = 0};
	put(&f, plain->bytes, 12);
	put(&f, tag, n);
	put(&f, plain->bytes + 12, plain->n - 12);
	return f;
}

static void vlans_are_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame inner =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x02);
	struct frame f = tagged(&inner, "\x81\x00\x00\x05", 4);
	assert_int_equal(exchange(t, &f).n, 0);
	f = tagged(&inner, "\x81\x00\x00\x00", 4); /* priority tag */
	assert_int_equal(exchange(t, &f).n, 0);
	f = tagged(&inner, "\x88\xa8\x00\x00\x81\x00\x00\x00", 8);
	assert_int_equal(exchange(t, &f).n, 0);
	struct frame arp = arp_frame(ARPOP_REQUEST, guest_mac, GUEST_ADDRESS, GUEST_GATEWAY);
	f = tagged(&arp, "\x81\x00\x00\x00", 4);
	assert_int_equal(exchange(t, &f).n, 0);
	assert_nothing_delivered(&t->slot);
	assert_counted(t, 4, 0, 0, 0);
}

static void other_ethernet_types_are_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	static const unsigned types[] = {0x0000, 0x0026, 0x88cc, 0x8847, 0x8863, 0x888e, 0xffff};
	for (size_t i = 0; i < 7; i++) {
		struct frame f = {.n = 0};
		put_ethernet(&f, i % 2 ? everyone : gateway_mac, guest_mac, types[i]);
		for (size_t n = 0; n < 46; n++)
			put8(&f, 0x42);
		assert_int_equal(exchange(t, &f).n, 0);
	}
	assert_counted(t, 7, 0, 0, 0);
}

static void broadcast_and_multicast_are_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	static const uint8_t mdns[6] = {0x01, 0x00, 0x5e, 0x00, 0x00, 0xfb};
	struct frame f =
		udp_frame((struct ipv4){GUEST_ADDRESS, "255.255.255.255", 0, 0, 0}, 68, 53, "x");
	memcpy(f.bytes, everyone, 6);
	assert_int_equal(exchange(t, &f).n, 0);
	f = udp_frame((struct ipv4){GUEST_ADDRESS, "224.0.0.251", 0, 0, 0}, 5353, 53, "x");
	memcpy(f.bytes, mdns, 6);
	assert_int_equal(exchange(t, &f).n, 0);
	f = tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x02);
	memcpy(f.bytes, everyone, 6);
	assert_int_equal(exchange(t, &f).n, 0);
	f.bytes[0] = 0x02; /* another host's MAC */
	assert_int_equal(exchange(t, &f).n, 0);
	assert_nothing_delivered(&t->slot);
	assert_counted(t, 4, 0, 0, 0);
}

static void broken_headers_are_dropped(void **state)
{
	need_root();
	struct raw *t = *state;
	struct frame whole =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x02);
	for (size_t n = 15; n < whole.n; n++) {
		struct frame f = whole;
		f.n = n;
		assert_int_equal(exchange(t, &f).n, 0);
	}
	for (unsigned version = 0; version < 16; version++) {
		struct frame f = whole;
		f.bytes[14] = (uint8_t)(version << 4 | 5);
		if (version != 4)
			assert_int_equal(exchange(t, &f).n, 0);
	}
	assert_nothing_delivered(&t->slot);
}

static void flows_are_bounded(void **state)
{
	need_root();
	struct raw *t = *state;
	for (unsigned i = 0; i < 6000; i++) {
		char to[INET_ADDRSTRLEN];
		snprintf(to, sizeof(to), "1.2.%u.%u", i / 250, i % 250);
		struct frame f = tcp_frame((struct ipv4){GUEST_ADDRESS, to, 0, 0, 0},
					   (uint16_t)(1024 + i), 443, 0x02);
		send_frame(t, &f);
		f = udp_frame((struct ipv4){GUEST_ADDRESS, to, 0, 0, 0}, (uint16_t)(1024 + i), 53,
			      "x");
		send_frame(t, &f);
		uint8_t sink[FRAME_MAX];
		while (read(t->slot.tap_fd, sink, sizeof(sink)) > 0)
			;
	}
	unsigned long flows = 0;
	int home = visit(t->slot.netns_fd);
	FILE *f = fopen("/proc/sys/net/netfilter/nf_conntrack_count", "re");
	leave(home);
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &flows), 1);
	fclose(f);
	assert_in_range(flows, 1000, 4096 + 2048 + 2);
	assert_true(counters(t).rejected > 0);
}

static void the_slot_says_nothing_unasked(void **state)
{
	need_root();
	struct raw *t = *state;
	assert_int_equal(answer(t).n, 0);
}

static void slots_do_not_see_each_other(void **state)
{
	need_root();
	struct raw *t = *state;
	struct raw other;
	open_slot(&other.slot);
	struct frame syn =
		tcp_frame((struct ipv4){GUEST_ADDRESS, "1.2.3.4", 0, 0, 0}, 40000, 443, 0x02);
	assert_true(exchange(t, &syn).n > 0);
	assert_int_equal(answer(&other).n, 0);
	assert_nothing_delivered(&other.slot);
	slot_close(&other.slot);
}

#define raw_test(f) cmocka_unit_test_setup_teardown(f, raw_open, raw_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		raw_test(arp_for_the_gateway_is_answered),
		raw_test(arp_for_others_is_not_answered),
		raw_test(arp_that_lies_is_not_answered),
		raw_test(tcp_is_answered_in_the_name_of_its_destination),
		raw_test(tcp_in_the_middle_of_nothing_is_reset),
		raw_test(a_gateway_that_is_gone_resets),
		raw_test(from_inside_only_the_guest_is_reached),
		raw_test(tcp_with_a_wrong_checksum_is_dropped_in_silence),
		raw_test(udp_to_other_ports_is_rejected),
		raw_test(ping_and_other_protocols_are_rejected),
		raw_test(icmp_errors_are_dropped_in_silence),
		raw_test(spoofed_addresses_are_dropped),
		raw_test(fragments_are_dropped),
		raw_test(dont_fragment_is_no_fragment),
		raw_test(ip_options_are_dropped),
		raw_test(ipv6_is_dropped),
		raw_test(vlans_are_dropped),
		raw_test(other_ethernet_types_are_dropped),
		raw_test(broadcast_and_multicast_are_dropped),
		raw_test(broken_headers_are_dropped),
		raw_test(flows_are_bounded),
		raw_test(the_slot_says_nothing_unasked),
		raw_test(slots_do_not_see_each_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
