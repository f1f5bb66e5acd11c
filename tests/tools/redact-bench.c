/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of the redactor over some kinds of bytes; bench/redact says more. Arguments: megabytes for
 * each rate, bytes of a piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "vault/scan.h"

#define TEXT_BYTES (32UL << 20)
#define TOKEN      40 /* bytes of a value */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

static void fill_letters(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = letters[(size_t)random() % (sizeof(letters) - 1)];
}

static void fill_binary(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)random();
}

/* The same line again and again, with random letters in place of each '@'. */
static void fill_lines(char *p, size_t n, const char *line)
{
	for (size_t i = 0; i < n; i++) {
		p[i] = line[i % strlen(line)];
		if (p[i] == '@')
			fill_letters(p + i, 1);
	}
}

static char *copied;
static size_t copied_len;

static void copy(void *user, const uint8_t *p, size_t n)
{
	(void)user;
	memcpy(copied + copied_len, p, n);
	copied_len += n;
}

/* Processor time, so that others on the machine count little. */
static uint64_t used_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static double rate(size_t bytes, uint64_t since_us)
{
	uint64_t us = used_us() - since_us;
	return (double)bytes / (double)(us ? us : 1) / 1000;
}

static double rate_memcpy(const char *text, size_t total, size_t piece)
{
	uint64_t since = used_us();
	for (size_t done = 0; done < total; done += TEXT_BYTES)
		for (size_t at = 0; at < TEXT_BYTES; at += piece) {
			memcpy(copied + at, text + at, piece);
			__asm__ volatile("" ::: "memory");
		}
	return rate(total, since);
}

static double rate_memmem(const char *text, size_t total, size_t piece, const char *value)
{
	uint64_t since = used_us();
	for (size_t done = 0; done < total; done += TEXT_BYTES)
		for (size_t at = 0; at < TEXT_BYTES; at += piece) {
			if (memmem(text + at, piece, value, TOKEN))
				abort();
			memcpy(copied + at, text + at, piece);
		}
	return rate(total, since);
}

static double rate_redact(const char *text, size_t total, size_t piece, struct needles *n)
{
	uint64_t since = used_us();
	for (size_t done = 0; done < total; done += TEXT_BYTES) {
		struct scan *s = scan_new(n, true);
		copied_len = 0;
		for (size_t at = 0; at < TEXT_BYTES; at += piece)
			scan_push(s, (const uint8_t *)text + at, piece, copy, NULL, NULL);
		scan_end(s, copy, NULL, NULL);
		scan_free(s);
		if (copied_len != TEXT_BYTES)
			abort();
	}
	return rate(total, since);
}

static struct needles *random_needles(unsigned count, char first[TOKEN + 1])
{
	struct needles *n = needles_new(NULL);
	for (unsigned i = 0; n && i < count; i++) {
		char value[TOKEN + 1] = "";
		fill_letters(value, TOKEN);
		if (!i)
			memcpy(first, value, sizeof(value));
		if (needles_add(n, value, TOKEN, i) < 0)
			return NULL;
	}
	return n && needles_compile(n) == 0 ? n : NULL;
}

static void measure(const char *kind, const char *text, size_t total, size_t piece)
{
	static const unsigned counts[] = {1, 8, 128};
	char value[TOKEN + 1] = "";
	struct needles *sets[3];
	for (unsigned i = 0; i < 3; i++)
		if (!(sets[i] = random_needles(counts[i], value)))
			abort();
	double plain = rate_memcpy(text, total, piece);
	double search = rate_memmem(text, total, piece, value);
	printf("%-8s %8.2f %8.2f", kind, plain, search);
	for (unsigned i = 0; i < 3; i++) {
		double redact = rate_redact(text, total, piece, sets[i]);
		printf("   %5.2f %4.0f%% %5.2f", redact, 100 * redact / plain, redact / search);
		needles_put(sets[i]);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	uint64_t mb = 1000, piece = 16384;
	if (argc > 3 || (argc > 1 && str_to_u64(argv[1], 1, 1000000, &mb) < 0) ||
	    (argc > 2 && str_to_u64(argv[2], 1, TEXT_BYTES, &piece) < 0) || piece & (piece - 1)) {
		fprintf(stderr, "usage: redact-bench [MB [BYTES (a power of two)]]\n");
		return 2;
	}
	size_t total = (mb * 1000000 + TEXT_BYTES - 1) / TEXT_BYTES * TEXT_BYTES;
	char *text = malloc(TEXT_BYTES);
	copied = calloc(1, TEXT_BYTES);
	if (!text || !copied)
		return 1;
	printf("%-8s %8s %8s   %18s   %18s   %18s\n", "", "memcpy", "memmem", "1 value", "8 values",
	       "128 values");
	fill_binary(text, TEXT_BYTES);
	measure("binary", text, total, piece);
	fill_letters(text, TEXT_BYTES);
	measure("letters", text, total, piece);
	fill_lines(text, TEXT_BYTES,
		   "2026-12-01 @@:@@:@@ GET /v1/objects/@@@@@@@@?after=@@@@@@@@ 200 took 17 ms\n");
	measure("lines", text, total, piece);
	fill_lines(
		text, TEXT_BYTES,
		"{\"id\":\"@@@@@@@@\",\"size\":1234,\"text\":\"a b @@@\\nd e f\",\"by\":\"@@@@@@@@\"}\n");
	measure("JSON", text, total, piece);
	fill_lines(text, TEXT_BYTES, "\\\"@@@@@@@@\\\":\\\"1234567\\/x\\\",%20@@@@@@@@%2F");
	measure("escapes", text, total, piece);
	free(copied);
	free(text);
	return 0;
}
