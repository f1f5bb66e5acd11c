/* SPDX-License-Identifier: Apache-2.0 */
/* A sealed value: a byte that says how (1), the nonce, the ciphertext, the tag. */
#include "daemon/seal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#define KEY_BYTES   32
#define NONCE_BYTES 12
#define TAG_BYTES   16
#define SEAL_AES    1 /* AES-256-GCM */
#define HEAD_BYTES  (1 + NONCE_BYTES)

_Static_assert(SEAL_OVERHEAD == HEAD_BYTES + TAG_BYTES, "the header says so");

struct seal {
	uint8_t key[KEY_BYTES];
};

/* In a page of its own. */
static struct seal *seal_new(void)
{
	struct seal *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		return NULL;
	if (madvise(s, sizeof(*s), MADV_DONTDUMP) < 0 ||
	    madvise(s, sizeof(*s), MADV_WIPEONFORK) < 0) {
		munmap(s, sizeof(*s));
		return NULL;
	}
	if (mlock(s, sizeof(*s)) < 0)
		log_warn("the key of the node's credentials is not locked in memory (%s): raise "
			 "RLIMIT_MEMLOCK or turn swap off",
			 strerrordesc_np(errno));
	return s;
}

void seal_close(struct seal *s)
{
	if (!s)
		return;
	explicit_bzero(s, sizeof(*s));
	munmap(s, sizeof(*s));
}

static int key_load(struct seal *s, int fd, const char *path, struct err *e)
{
	struct stat st;
	uint8_t more;
	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "can't read %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EBADMSG, "%s is no file: it holds the key of the credentials",
			       path);
	if (st.st_uid != geteuid())
		return err_set(e, EPERM, "%s belongs to uid %u: make it ours (chown %u)", path,
			       st.st_uid, geteuid());
	if (st.st_mode & 077)
		return err_set(e, EPERM,
			       "%s can be read or written by others (mode %04o): chmod 600 it, and "
			       "set new credentials if somebody has read it",
			       path, st.st_mode & 07777);
	ssize_t n = fd_read_all(fd, s->key, KEY_BYTES);
	if (n < 0)
		return err_sys(e, (int)-n, "can't read %s", path);
	if (n != KEY_BYTES || fd_read_all(fd, &more, 1) != 0)
		return err_set(
			e, EBADMSG,
			"%s is damaged: a key has %d bytes, this has %jd. Put it back from a "
			"copy; or remove it, and set all credentials anew",
			path, KEY_BYTES, (intmax_t)st.st_size);
	return 0;
}

/* By a link to what is complete and on disk: it is there whole or not at all, and a key that is
 * there already stays. */
static int key_write(int dir, const char *name, const uint8_t *key)
{
	char self[32];
	auto_fd int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	int r = fd_write_all(fd, key, KEY_BYTES);
	if (r < 0)
		return r;
	if (fsync(fd) < 0 || linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) < 0 ||
	    fsync(dir) < 0)
		return -errno;
	return 0;
}

static int key_make(const char *path, struct err *e)
{
	uint8_t key[KEY_BYTES];
	auto_free char *parent = strdup(path);
	if (!parent)
		return err_set(e, ENOMEM, "no memory");
	char *slash = strrchr(parent, '/');
	assert(slash);
	*slash = '\0';
	auto_fd int dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, errno, "can't open %s", parent);
	random_bytes(key, sizeof(key));
	int r = key_write(dir, slash + 1, key);
	explicit_bzero(key, sizeof(key));
	return r < 0 && r != -EEXIST ? err_sys(e, -r, "can't make %s", path) : 0;
}

static int key_open(struct seal *s, const char *path, bool make, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0)
		return key_load(s, fd, path, e);
	if (errno == ELOOP)
		return err_set(e, EBADMSG, "%s is a link: the key must be there itself", path);
	if (errno != ENOENT)
		return err_sys(e, errno, "can't read %s", path);
	if (!make)
		return err_set(e, ENOKEY,
			       "%s is gone, with which credentials were sealed: put it back, or "
			       "remove those and set them anew",
			       path);
	int r = key_make(path, e);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	return fd < 0 ? err_sys(e, errno, "can't read %s", path) : key_load(s, fd, path, e);
}

struct seal *seal_open(const char *path, bool make, struct err *e)
{
	struct seal *s = seal_new();
	if (!s) {
		err_set(e, ENOMEM, "no memory that is kept out of dumps");
		return NULL;
	}
	if (key_open(s, path, make, e) == 0)
		return s;
	seal_close(s);
	return NULL;
}

int seal_wrap(const struct seal *s, const char *name, const void *p, size_t n, uint8_t **ret,
	      size_t *ret_len, struct err *e)
{
	if (n > INT_MAX - SEAL_OVERHEAD)
		return err_set(e, EINVAL, "credential %s is too long to be sealed", name);
	uint8_t *out = malloc(n + SEAL_OVERHEAD);
	if (!out)
		return err_set(e, ENOMEM, "no memory");
	uint8_t *nonce = out + 1, *text = out + HEAD_BYTES;
	out[0] = SEAL_AES;
	random_bytes(nonce, NONCE_BYTES);

	int len;
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	bool ok = c && EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, nonce) &&
		  EVP_EncryptUpdate(c, NULL, &len, out, 1) &&
		  EVP_EncryptUpdate(c, NULL, &len, (const uint8_t *)name, (int)strlen(name)) &&
		  EVP_EncryptUpdate(c, text, &len, p, (int)n) &&
		  EVP_EncryptFinal_ex(c, text + len, &len) &&
		  EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, text + n);
	EVP_CIPHER_CTX_free(c);
	if (!ok) {
		free(out);
		return err_set(e, EIO, "OpenSSL could not seal credential %s", name);
	}
	*ret = out;
	*ret_len = n + SEAL_OVERHEAD;
	return 0;
}

int seal_unwrap(const struct seal *s, const char *name, const void *p, size_t n, char **ret,
		size_t *ret_len, struct err *e)
{
	const uint8_t *in = p, *nonce = in + 1, *text = in + HEAD_BYTES;
	if (n < SEAL_OVERHEAD || n > INT_MAX || in[0] != SEAL_AES)
		return err_set(e, EBADMSG,
			       "what is stored of credential %s is damaged: set it anew", name);
	size_t plain = n - SEAL_OVERHEAD;
	uint8_t tag[TAG_BYTES];
	memcpy(tag, text + plain, TAG_BYTES);
	char *out = malloc(plain + 1);
	if (!out)
		return err_set(e, ENOMEM, "no memory");

	int len, rest;
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	bool ok = c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->key, nonce) &&
		  EVP_DecryptUpdate(c, NULL, &len, in, 1) &&
		  EVP_DecryptUpdate(c, NULL, &len, (const uint8_t *)name, (int)strlen(name)) &&
		  EVP_DecryptUpdate(c, (uint8_t *)out, &len, text, (int)plain) &&
		  EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) &&
		  EVP_DecryptFinal_ex(c, (uint8_t *)out + len, &rest) > 0;
	EVP_CIPHER_CTX_free(c);
	if (!ok) {
		explicit_bzero(out, plain);
		free(out);
		return err_set(
			e, EBADMSG,
			"the value of credential %s can't be unsealed: it is damaged, or the "
			"node's key is another. Set it anew, or put the key back",
			name);
	}
	out[plain] = '\0';
	*ret = out;
	*ret_len = plain;
	return 0;
}
