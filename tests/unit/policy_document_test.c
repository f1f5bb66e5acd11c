/* SPDX-License-Identifier: Apache-2.0 */
/* Policy documents: what they say, where they are wrong, and the way to a gateway and back. */
#include "base/cleanup.h"
#include "base/str.h"
#include "policy_fixture.h"

static bool allows(const struct policy *p, enum policy_scheme scheme, const char *host,
		   uint16_t port)
{
	struct policy_dest dest = {.scheme = scheme, .port = port};
	strcpy(dest.host, host);
	struct policy_verdict v;
	policy_decide(p, &dest, &v);
	return v.allow;
}

static const char whole[] = "egress:\n"
			    "  - host: API.example.com.\n"
			    "  - host: '*.example.org'\n"
			    "    ports: [443, 8443]\n"
			    "  - host: plain.example.com\n"
			    "    scheme: http\n"
			    "  - {host: both.example.com, scheme: http, ports: [8080]}\n"
			    "resolve:\n"
			    "  - host: api.example.com\n"
			    "    address: 10.0.0.7\n"
			    "    ca: |\n"
			    "      -----BEGIN CERTIFICATE-----\n"
			    "      AAAA\n"
			    "      -----END CERTIFICATE-----\n"
			    "  - host: six.example.com\n"
			    "    address: FD00:0::7\n";

static void check_whole(const struct policy *p)
{
	const char *address = NULL, *ca = NULL;
	assert_true(allows(p, POLICY_HTTPS, "api.example.com", 443));
	assert_false(allows(p, POLICY_HTTPS, "api.example.com", 80));
	assert_false(allows(p, POLICY_HTTP, "api.example.com", 443));
	assert_true(allows(p, POLICY_HTTPS, "a.example.org", 8443));
	assert_false(allows(p, POLICY_HTTPS, "a.b.example.org", 8443));
	assert_true(allows(p, POLICY_HTTP, "plain.example.com", 80));
	assert_false(allows(p, POLICY_HTTPS, "plain.example.com", 443));
	assert_true(allows(p, POLICY_HTTP, "both.example.com", 8080));
	assert_false(allows(p, POLICY_HTTP, "both.example.com", 80));

	assert_true(policy_resolve(p, "api.example.com", &address, &ca));
	assert_string_equal(address, "10.0.0.7");
	assert_string_equal(ca, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
	assert_true(policy_resolve(p, "six.example.com", &address, &ca));
	assert_string_equal(address, "fd00::7");
	assert_null(ca);
	assert_false(policy_resolve(p, "example.com", &address, &ca));
}

static void documents_mean_what_they_say(void **state)
{
	(void)state;
	struct policy *p = compiled(whole);
	check_whole(p);
	policy_free(p);
}

static void a_policy_travels_as_json(void **state)
{
	(void)state;
	struct policy *p = compiled(whole);
	auto_json json_t *j = policy_to_json(p);
	auto_free char *text = doc_to_text(j);
	policy_free(p);

	struct err e = {0};
	auto_json json_t *received = doc_parse_json(text, strlen(text), &e);
	struct policy *q = policy_from_json(received, &e);
	if (!q)
		fail_msg("%s", e.text);
	check_whole(q);
	auto_json json_t *again = policy_to_json(q);
	assert_true(json_equal(j, again));
	policy_free(q);
}

static void empty_documents_allow_nothing(void **state)
{
	(void)state;
	static const char *const table[] = {
		"",
		"{}",
		"null",
		"egress:\n",
		"egress: []\nresolve: []\n",
		"# nothing\n",
		"{\"egress\": null, \"resolve\": null}",
	};
	for (EACH(i, table)) {
		struct policy *p = compiled(table[i]);
		assert_false(allows(p, POLICY_HTTPS, "example.com", 443));
		assert_false(policy_knows_host(p, "example.com"));
		policy_free(p);
	}
}

static void errors_name_the_place_and_what_is_allowed(void **state)
{
	(void)state;
	static const char *const table[][2] = {
		{"[]", "p.yaml:1:1: must be a mapping with egress, limits, proxy, resolve"},
		{"text", "p.yaml:1:1: must be a mapping"},
		{"true", "p.yaml: must be a mapping"},
		{"egres: []",
		 "p.yaml:1:8: egres: unknown field; allowed are egress, limits, proxy, resolve"},
		{"egress: 5", "p.yaml:1:9: egress: must be a list"},
		{"egress: {}", "p.yaml:1:9: egress: must be a list"},
		{"\negress: true", "p.yaml:2:1: egress: must be a list"},
		{"egress: [7]",
		 "p.yaml:1:10: egress[0]: must be a mapping with host, cidr, ports, scheme"},
		{"egress:\n- host: a.example\n  port: 443\n",
		 "p.yaml:3:9: egress[0].port: unknown field; allowed are host, cidr, ports, scheme"},
		{"egress:\n- host: a.example\n  denied: true\n",
		 "p.yaml:2:3: egress[0].denied: unknown field"},
		{"egress:\n- ports: [1]\n", "p.yaml:2:3: egress[0].host: missing"},
		{"egress:\n- host:\n", "p.yaml:2:3: egress[0].host: missing"},
		{"egress:\n- host: 5\n", "p.yaml:2:9: egress[0].host: must be a string"},
		{"egress:\n- host: a.example\n- host: b..example\n",
		 "p.yaml:3:9: egress[1].host: a host name has no empty labels"},
		{"egress:\n- host: a.example:80\n",
		 "p.yaml:2:9: egress[0].host: a host name only; the port goes"},
		{"egress:\n- host: https://a.example\n", "egress[0].host: a host name only"},
		{"egress:\n- host: a.example/x\n", "egress[0].host: a host name only"},
		{"egress:\n- host: '*'\n", "p.yaml:2:9: egress[0].host: '*' would be every host"},
		{"egress:\n- host: '*.co.uk'\n", "egress[0].host: anybody can register"},
		{"egress:\n- host: 10.0.0.1\n",
		 "p.yaml:2:9: egress[0].host: an IP address is no host name"},
		{"{\"egress\":[{\"host\":\"a\\u0000.example\"}]}", "p.yaml:1:20: a NUL"},
		{"egress:\n- host: a.example\n  scheme: ftp\n",
		 "p.yaml:3:11: egress[0].scheme: must be https, http, tls or tcp"},
		{"egress:\n- host: a.example\n  scheme: 1\n",
		 "p.yaml:3:11: egress[0].scheme: must be a string"},
		{"egress:\n- host: a.example\n  ports: 443\n",
		 "p.yaml:3:10: egress[0].ports: must be a list of ports, for instance [443]"},
		{"egress:\n- host: a.example\n  ports: []\n", "egress[0].ports: must be a list"},
		{"egress:\n- host: a.example\n  ports: {}\n", "egress[0].ports: must be a list"},
		{"egress:\n- host: a.example\n  ports: [443, 0]\n",
		 "p.yaml:3:16: egress[0].ports[1]: a port is a number from 1 to 65535"},
		{"egress:\n- host: a.example\n  ports: [65536]\n",
		 "p.yaml:3:11: egress[0].ports[0]: a port"},
		{"egress:\n- host: a.example\n  ports: [-1]\n", "egress[0].ports[0]: a port"},
		{"egress:\n- host: a.example\n  ports: ['443']\n", "egress[0].ports[0]: a port"},
		{"egress:\n- host: a.example\n  ports: [true]\n",
		 "p.yaml:3:10: egress[0].ports[0]: a port"},
		{"egress:\n- {host: a.example, cidr: 10.0.0.0/8}\n",
		 "p.yaml:2:27: egress[0].cidr: stands instead of host"},
		{"egress:\n- {cidr: 10.0.0.1/8}\n",
		 "p.yaml:2:10: egress[0].cidr: must be an address or a prefix without bits"},
		{"egress:\n- {cidr: 10.0.0.0/33}\n", "egress[0].cidr: must be"},
		{"egress:\n- {cidr: 10.0/8}\n", "egress[0].cidr: must be"},
		{"egress:\n- {cidr: a.example}\n", "egress[0].cidr: must be"},
		{"egress:\n- {cidr: 5}\n", "egress[0].cidr: must be a string"},
		{"egress:\n- {cidr: '::ffff:10.0.0.0/104'}\n", "egress[0].cidr: IPv4 inside IPv6"},
		{"egress:\n- {cidr: 0.0.0.0/0}\n", "egress[0].cidr: would be every address"},
		{"egress:\n- {cidr: '::/0'}\n", "egress[0].cidr: would be every address"},
		{"egress:\n- {cidr: 169.254.169.254}\n", "egress[0].cidr: a cloud's metadata"},
		{"egress:\n- {cidr: 'fd00:ec2::254/128'}\n", "egress[0].cidr: a cloud's metadata"},
		{"egress:\n- {host: a.example, scheme: tcp}\n",
		 "p.yaml:2:3: egress[0].ports: missing: tcp has no port of its own"},
		{"egress:\n- {host: a.example, scheme: tls, methods: [GET]}\n",
		 "egress[0].methods: tls is passed on unread and has no methods"},
		{"egress:\n- {host: a.example, scheme: tcp, ports: [1], paths: [/]}\n",
		 "egress[0].paths: tcp is passed on unread and has no paths"},
		{"egress:\n- {host: a.example, scheme: tls, encodedSlash: false}\n",
		 "egress[0].encodedSlash: tls is passed"},
		{"egress:\n- {host: a.example, methods: GET}\n",
		 "p.yaml:2:30: egress[0].methods: must be a list with something in it"},
		{"egress:\n- {host: a.example, methods: []}\n",
		 "egress[0].methods: must be a list"},
		{"egress:\n- {host: a.example, methods: [GET, get]}\n",
		 "p.yaml:2:36: egress[0].methods[1]: a method is in upper case"},
		{"egress:\n- {host: a.example, methods: [true]}\n",
		 "p.yaml:2:30: egress[0].methods[0]: must be a string"},
		{"egress:\n- {host: a.example, methods: [CONNECT]}\n", "CONNECT never passes"},
		{"egress:\n- {host: a.example, methods: [TRACE]}\n", "TRACE never passes"},
		{"egress:\n- {host: a.example, methods: [TRACK]}\n", "TRACK never passes"},
		{"egress:\n- {host: a.example, paths: {}}\n", "egress[0].paths: must be a list"},
		{"egress:\n- {host: a.example, paths: [/a, b]}\n",
		 "p.yaml:2:33: egress[0].paths[1]: begins with '/'"},
		{"egress:\n- {host: a.example, paths: [/a%2Fb]}\n",
		 "p.yaml:2:29: egress[0].paths[0]: %2F needs encodedSlash: true beside it"},
		{"egress:\n- {host: a.example, encodedSlash: 1}\n",
		 "p.yaml:2:35: egress[0].encodedSlash: must be true or false"},
		{"egress:\n- {host: a.example, deny: 'yes'}\n",
		 "p.yaml:2:27: egress[0].deny: must be true or false"},
		{"egress:\n- {host: a.example, deny: true, encodedSlash: true}\n",
		 "egress[0].encodedSlash: a deny rule meets %2F in either reading"},
		{"{\"egress\":[{\"host\":\"a.example\",\"paths\":[\"/a\\u0000\"]}]}", "a NUL"},
		{"resolve: x", "p.yaml:1:10: resolve: must be a list"},
		{"resolve:\n- x\n",
		 "p.yaml:2:3: resolve[0]: must be a mapping with host, address, ca"},
		{"resolve:\n- {host: a.example, address: 10.0.0.1, port: 1}\n",
		 "resolve[0].port: unknown field; allowed are host, address, ca"},
		{"resolve:\n- {address: 10.0.0.1}\n", "resolve[0].host: missing"},
		{"resolve:\n- {host: a.example}\n", "p.yaml:2:3: resolve[0].address: missing"},
		{"resolve:\n- {host: '*.a.example', address: 10.0.0.1}\n",
		 "resolve[0].host: one name, no pattern"},
		{"resolve:\n- {host: 'a_b!', address: 10.0.0.1}\n",
		 "resolve[0].host: a host name has letters"},
		{"resolve:\n- {host: a.example, address: 010.0.0.1}\n",
		 "resolve[0].address: must be an IPv4 address"},
		{"resolve:\n- {host: a.example, address: 10.0.0.1/32}\n",
		 "resolve[0].address: must be"},
		{"resolve:\n- {host: a.example, address: localhost}\n",
		 "resolve[0].address: must be"},
		{"resolve:\n- {host: a.example, address: 10}\n",
		 "resolve[0].address: must be a string"},
		{"resolve:\n- {host: a.example, address: 169.254.169.254}\n",
		 "resolve[0].address: a cloud's metadata service is never reachable"},
		{"resolve:\n- {host: a.example, address: '::ffff:169.254.169.254'}\n", "metadata"},
		{"resolve:\n- {host: a.example, address: 'fd00:ec2::254'}\n", "metadata"},
		{"resolve:\n- {host: a.example, address: 224.0.0.1}\n",
		 "multicast: not the address of one host"},
		{"resolve:\n- {host: a.example, address: 255.255.255.255}\n", "broadcast: not"},
		{"resolve:\n- {host: a.example, address: '::'}\n", "unspecified: not"},
		{"resolve:\n- {host: a.example, address: 0.0.0.0}\n", "this network: not"},
		{"resolve:\n- {host: a.example, address: 10.0.0.1, ca: x}\n",
		 "resolve[0].ca: must hold a certificate in PEM form"},
		{"resolve:\n- {host: a.example, address: 10.0.0.1, ca: []}\n",
		 "resolve[0].ca: must be a string"},
		{"resolve:\n- {host: a.example, address: 10.0.0.1}\n- {host: A.EXAMPLE, address: 10.0.0.2}\n",
		 "p.yaml:3:10: resolve[1].host: a.example already has an address above"},
	};
	for (EACH(i, table))
		assert_wrong(table[i][0], table[i][1]);
}

static void errors_may_be_ignored(void **state)
{
	(void)state;
	assert_null(compile("egress: 5", NULL));
	auto_json json_t *j = json_pack("{s:[{s:s}]}", "egress", "host", "*");
	assert_null(policy_from_json(j, NULL));
}

static void a_nul_in_a_field_is_refused(void **state)
{
	(void)state;
	struct err e = {0};
	auto_json json_t *j =
		json_pack("{s:[{s:s%}]}", "egress", "host", "a.example\0b", (size_t)11);
	assert_non_null(j);
	assert_null(policy_from_json(j, &e));
	assert_string_equal(e.text, "policy: egress[0].host: a NUL in a string");
}

static json_t *many(const char *section, size_t count)
{
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++) {
		auto_free char *host = str_printf("h%zu.example", i);
		json_t *entry = str_eq(section, "egress") ? json_pack("{s:s}", "host", host)
							  : json_pack("{s:s, s:s}", "host", host,
								      "address", "10.0.0.1");
		json_array_append_new(list, entry);
	}
	return json_pack("{s:o}", section, list);
}

static void counts_are_bounded(void **state)
{
	(void)state;
	static const struct {
		const char *section;
		size_t most;
		const char *error;
	} table[] = {
		{"egress", 1024, "policy: egress[1024].host: a policy has at most 1024 rules"},
		{"resolve", 256, "policy: resolve[256].host: a policy resolves at most 256 names"},
	};
	for (EACH(i, table)) {
		struct err e = {0};
		auto_json json_t *most = many(table[i].section, table[i].most);
		struct policy *p = policy_from_json(most, &e);
		assert_non_null(p);
		policy_free(p);
		auto_json json_t *more = many(table[i].section, table[i].most + 1);
		assert_null(policy_from_json(more, &e));
		assert_string_equal(e.text, table[i].error);
	}

	struct err e = {0};
	auto_json json_t *addresses = many("egress", 1024);
	json_array_append_new(json_object_get(addresses, "egress"),
			      json_pack("{s:s}", "cidr", "10.0.0.0/8"));
	assert_null(policy_from_json(addresses, &e));
	assert_string_equal(e.text, "policy: egress[1024].cidr: a policy has at most 1024 rules");

	json_t *ports = json_array();
	for (size_t i = 0; i < 65; i++)
		json_array_append_new(ports, json_integer(443));
	auto_json json_t *j =
		json_pack("{s:[{s:s, s:o}]}", "egress", "host", "a.example", "ports", ports);
	assert_null(policy_from_json(j, &e));
	assert_non_null(strstr(e.text, "at most 64 ports"));

	json_t *methods = json_array(), *paths = json_array();
	for (size_t i = 0; i < 257; i++) {
		json_array_append_new(methods, json_string("GET"));
		json_array_append_new(paths, json_string("/x"));
	}
	auto_json json_t *wordy =
		json_pack("{s:[{s:s, s:o}]}", "egress", "host", "a.example", "methods", methods);
	assert_null(policy_from_json(wordy, &e));
	assert_non_null(strstr(e.text, "egress[0].methods: at most 32 methods"));
	auto_json json_t *long_way =
		json_pack("{s:[{s:s, s:o}]}", "egress", "host", "a.example", "paths", paths);
	assert_null(policy_from_json(long_way, &e));
	assert_non_null(strstr(e.text, "egress[0].paths: at most 256 paths"));
}

static void a_certificate_file_is_bounded(void **state)
{
	(void)state;
	struct err e = {0};
	size_t n = 64 * 1024 + 1;
	auto_free char *ca = malloc(n + 1);
	memset(ca, 'A', n);
	ca[n] = '\0';
	auto_json json_t *j = json_pack("{s:[{s:s, s:s, s:s}]}", "resolve", "host", "a.example",
					"address", "10.0.0.1", "ca", ca);
	assert_null(policy_from_json(j, &e));
	assert_non_null(strstr(e.text, "resolve[0].ca: longer than"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(documents_mean_what_they_say),
		cmocka_unit_test(a_policy_travels_as_json),
		cmocka_unit_test(empty_documents_allow_nothing),
		cmocka_unit_test(errors_name_the_place_and_what_is_allowed),
		cmocka_unit_test(errors_may_be_ignored),
		cmocka_unit_test(a_nul_in_a_field_is_refused),
		cmocka_unit_test(counts_are_bounded),
		cmocka_unit_test(a_certificate_file_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
