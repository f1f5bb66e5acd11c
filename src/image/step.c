/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a build. mmdebstrap makes the tree, and while its apt knows the suite, fetches the
 * kernel's package too: this host's apt may follow other releases. The package is unpacked beside
 * the tree, never into it: over a merged /usr it would replace the link /lib, and the guest needs
 * none of it but a few modules in the initramfs.
 */
#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/doc.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/proc.h"
#include "base/str.h"
#include "image/build.h"
#include "image/disk.h"
#include "image/initramfs.h"
#include "image/kernel.h"
#include "image/modules.h"
#include "image/store.h"

#define APT_CONF_MAX     (256u << 10) /* bytes */
#define KERNEL_FILE_MAX  (128u << 20)
#define MODULES_TEXT_MAX (8u << 20)
#define ENVIRONMENT_MAX  (256u << 10)
#define MMDEBSTRAP_ARGS  (24 + SOURCES_MAX)

#define DEBIAN_KEYRING "/usr/share/keyrings/debian-archive-keyring.gpg"

/* Downloads $SPACE_KERNEL, or the package that it stands for, with the apt of the tree. */
static const char fetch_kernel[] =
	"export APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" && cd \"$SPACE_PACKAGES\" && "
	"package=$(apt-cache depends --important \"$SPACE_KERNEL\" | "
	"sed -n 's/^ *Depends: \\(linux-image-[^ ]*\\)$/\\1/p' | head -n 1) && "
	"apt-get -q -o APT::Sandbox::User=root download \"${package:-$SPACE_KERNEL}\"";

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "not enough memory");
}

/* dir/file, on the heap. */
static char *path_in(const struct build *b, const char *file)
{
	return str_printf("%s/%s", b->dir, file);
}

static int write_text(const struct build *b, const char *file, const char *text, struct err *e)
{
	auto_free char *path = path_in(b, file);
	if (!path)
		return no_memory(e);
	int r = file_write_atomic(path, text, strlen(text), 0600);
	return r < 0 ? err_sys(e, -r, "writing %s", path) : 0;
}

static int write_environment(const struct build *b, struct err *e)
{
	auto_buf struct buf text;
	buf_init(&text, ENVIRONMENT_MAX);
	const char *key;
	json_t *value;
	json_object_foreach(b->recipe.env, key, value)
	{
		if (buf_printf(&text, "%s=%s\n", key, json_string_value(value)) < 0)
			return err_set(e, EFBIG, "the recipe's env is too long");
	}
	auto_free char *s = buf_take_str(&text);
	return s ? write_text(b, "environment", s, e) : no_memory(e);
}

/* How this host's apt reaches its mirrors: proxies, certificates, retries. Not left in the tree. */
static int write_apt_conf(const struct build *b, struct err *e)
{
	static const char *const argv[] = {"apt-config",   "dump",    "--format",
					   "%F \"%v\";%n", "Acquire", NULL};
	auto_free char *text = NULL;
	int r = proc_output(argv, APT_CONF_MAX, &text, e);
	return r < 0 ? r : write_text(b, "apt.conf", text, e);
}

__attribute__((format(printf, 2, 3))) static int add_env(struct build *b, const char *fmt, ...)
{
	size_t i = 0;
	while (b->env[i])
		i++;
	if (i == BUILD_ENV_MAX - 1)
		return -E2BIG;
	va_list ap;
	va_start(ap, fmt);
	int n = vasprintf(&b->env[i], fmt, ap);
	va_end(ap);
	if (n < 0)
		b->env[i] = NULL;
	return n < 0 ? -ENOMEM : 0;
}

static int set_env(struct build *b, struct err *e)
{
	static const char *const passed[] = {"http_proxy", "https_proxy", "no_proxy",
					     "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"};
	int r = add_env(b, TOOL_PATH_ENV);
	r |= add_env(b, "HOME=/root");
	r |= add_env(b, "LC_ALL=C.UTF-8");
	r |= add_env(b, "DEBIAN_FRONTEND=noninteractive");
	r |= add_env(b, "SPACE_PACKAGES=%s/packages", b->dir);
	r |= add_env(b, "SPACE_KERNEL=%s", b->recipe.kernel);
	r |= add_env(b, "SPACE_CA=%s/ca.pem", b->dir);
	r |= add_env(b, "SPACE_CA_FILE=" GUEST_CA_FILE);
	r |= add_env(b, "SPACE_ENVIRONMENT=%s/environment", b->dir);
	r |= add_env(b, "SPACE_DNS=" GUEST_GATEWAY);
	r |= add_env(b, "SPACE_USER=%s", b->recipe.user);
	r |= add_env(b, "SPACE_WORKDIR=%s", b->recipe.workdir);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
		const char *value = getenv(passed[i]);
		if (value)
			r |= add_env(b, "%s=%s", passed[i], value);
	}
	b->tools.env = (const char *const *)b->env;
	return r ? no_memory(e) : 0;
}

int build_lay_out(struct build *b, struct err *e)
{
	static const char *const dirs[] = {"out", "packages", "kernel"};
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		auto_free char *path = path_in(b, dirs[i]);
		if (!path)
			return no_memory(e);
		if (mkdir(path, 0755) < 0)
			return err_sys(e, errno, "making %s", path);
	}
	int r = write_text(b, "ca.pem", b->ca_pem, e);
	if (r == 0)
		r = write_environment(b, e);
	if (r == 0)
		r = write_apt_conf(b, e);
	if (r == 0)
		r = set_env(b, e);
	return r;
}

/* "--include=a,b,c" on the heap. */
static char *include_option(const json_t *packages)
{
	auto_buf struct buf text;
	buf_init(&text, 128u << 10);
	if (buf_append_str(&text, "--include=") < 0)
		return NULL;
	size_t i;
	json_t *item;
	json_array_foreach(packages, i, item)
	{
		if (buf_printf(&text, "%s%s", i ? "," : "", json_string_value(item)) < 0)
			return NULL;
	}
	return buf_take_str(&text);
}

static int run_mmdebstrap(struct build *b, const char *root, struct err *e)
{
	auto_free char *include = include_option(b->recipe.packages);
	auto_free char *aptopt = str_printf("--aptopt=%s/apt.conf", b->dir);
	auto_free char *fetch = str_printf("--customize-hook=%s", fetch_kernel);
	auto_free char *customize = str_printf("--customize-hook=%s/customize", b->recipe_dir);
	if (!include || !aptopt || !fetch || !customize)
		return no_memory(e);
	const char *argv[MMDEBSTRAP_ARGS] = {
		"mmdebstrap",
		"--mode=root",
		"--variant=minbase",
		"--format=directory",
		"--aptopt=APT::Install-Recommends \"0\"",
		aptopt,
		"--dpkgopt=force-unsafe-io",
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/info/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright",
		include,
		fetch,
		customize,
	};
	size_t n = 15;
	if (access(DEBIAN_KEYRING, R_OK) == 0)
		argv[n++] = "--keyring=" DEBIAN_KEYRING;
	argv[n++] = b->recipe.suite;
	argv[n++] = root;
	for (size_t i = 0; i < b->sources.count; i++)
		argv[n++] = b->sources.lines[i];
	argv[n] = NULL;
	return tools_run(&b->tools, argv, e);
}

int build_install_packages(struct build *b, struct err *e)
{
	auto_free char *root = path_in(b, "root");
	auto_free char *conf = path_in(b, "root/etc/apt/apt.conf.d/99mmdebstrap");
	if (!root || !conf)
		return no_memory(e);
	tools_say(&b->tools, "installing Debian %s with %zu chosen packages", b->recipe.suite,
		  json_array_size(b->recipe.packages));
	int r = run_mmdebstrap(b, root, e);
	if (r < 0)
		return r;
	if (unlink(conf) < 0 && errno != ENOENT)
		return err_sys(e, errno, "removing %s", conf);
	return 0;
}

/* Adds the variable of one line "NAME=value"; empty lines and comments are none. */
static int take_variable(json_t *env, const char *line, size_t n, struct err *e)
{
	if (n == 0 || line[0] == '#')
		return 0;
	const char *eq = memchr(line, '=', n);
	auto_free char *key = strndup(line, eq ? (size_t)(eq - line) : n);
	if (!key)
		return no_memory(e);
	if (!eq || !str_is_env_name(key))
		return err_set(e, EINVAL, "/etc/environment of the image: '%.60s' is no variable",
			       key);
	size_t len = n - (size_t)(eq + 1 - line);
	if (json_object_set_new(env, key, json_stringn(eq + 1, len)) < 0)
		return err_set(e, EINVAL, "/etc/environment of the image: %s is not UTF-8", key);
	return 0;
}

int build_read_environment(struct build *b, struct err *e)
{
	auto_free char *path = path_in(b, "root/etc/environment");
	auto_free char *text = NULL;
	size_t len;
	if (!path)
		return no_memory(e);
	int r = file_read(path, ENVIRONMENT_MAX, &text, &len);
	if (r < 0)
		return err_sys(e, -r, "reading %s", path);
	auto_json json_t *env = json_object();
	if (!env)
		return no_memory(e);
	for (const char *line = text; r == 0 && *line;) {
		size_t n = strcspn(line, "\n");
		r = take_variable(env, line, n, e);
		line += n + (line[n] == '\n');
	}
	if (r == 0)
		b->guest_env = take_ptr(env);
	return r;
}

/* The one path that matches, on the heap. */
static int glob_one(const struct build *b, const char *pattern, char **ret, struct err *e)
{
	auto_free char *full = path_in(b, pattern);
	if (!full)
		return no_memory(e);
	glob_t found = {0};
	int r = 0;
	if (glob(full, GLOB_NOSORT, NULL, &found) != 0 || found.gl_pathc != 1)
		r = err_set(e, ENOENT, "the kernel's package %s: %zu files are %s",
			    b->recipe.kernel, found.gl_pathc, pattern);
	else if (!(*ret = strdup(found.gl_pathv[0])))
		r = no_memory(e);
	globfree(&found);
	return r;
}

static int write_kernel(const struct build *b, const char *vmlinuz, struct err *e)
{
	auto_free char *out = path_in(b, "out/" STORE_KERNEL);
	auto_free char *file = NULL;
	size_t len;
	if (!out)
		return no_memory(e);
	int r = file_read(vmlinuz, KERNEL_FILE_MAX, &file, &len);
	if (r < 0)
		return err_sys(e, -r, "reading %s", vmlinuz);
	auto_buf struct buf elf;
	buf_init(&elf, KERNEL_ELF_MAX);
	r = kernel_extract(file, len, &elf, e);
	if (r < 0)
		return err_prefix(e, "%s", strrchr(vmlinuz, '/') + 1);
	r = file_write_atomic(out, elf.data, elf.len, 0644);
	return r < 0 ? err_sys(e, -r, "writing %s", out) : 0;
}

int build_unpack_kernel(struct build *b, struct err *e)
{
	auto_free char *deb = NULL;
	auto_free char *vmlinuz = NULL;
	auto_free char *to = path_in(b, "kernel");
	if (!to)
		return no_memory(e);
	int r = glob_one(b, "packages/*.deb", &deb, e);
	if (r < 0)
		return r;
	const char *const argv[] = {"dpkg-deb", "-x", deb, to, NULL};
	r = tools_run(&b->tools, argv, e);
	if (r == 0)
		r = glob_one(b, "kernel/boot/vmlinuz-*", &vmlinuz, e);
	if (r < 0)
		return r;
	b->kernel_release = strdup(strrchr(vmlinuz, '/') + strlen("/vmlinuz-"));
	if (!b->kernel_release)
		return no_memory(e);
	tools_say(&b->tools, "unpacking kernel %s", b->kernel_release);
	return write_kernel(b, vmlinuz, e);
}

static int read_in(const char *dir, const char *file, char **ret, struct err *e)
{
	auto_free char *path = str_printf("%s/%s", dir, file);
	size_t len;
	if (!path)
		return no_memory(e);
	int r = file_read(path, MODULES_TEXT_MAX, ret, &len);
	return r < 0 ? err_sys(e, -r, "reading %s", path) : 0;
}

static int resolve_modules(const struct build *b, const char *dir, struct modules *ret,
			   struct err *e)
{
	auto_free char *dep = NULL;
	auto_free char *builtin = NULL;
	int r = read_in(dir, "modules.dep", &dep, e);
	if (r == 0)
		r = read_in(dir, "modules.builtin", &builtin, e);
	if (r < 0)
		return r;
	const char *names[RECIPE_PACKAGES_MAX];
	size_t count = 0;
	size_t i;
	json_t *item;
	json_array_foreach(b->recipe.modules, i, item)
	{
		names[count++] = json_string_value(item);
	}
	return modules_resolve(dep, builtin, names, count, ret, e);
}

int build_make_initramfs(struct build *b, struct err *e)
{
	struct stat st;
	auto_free char *usr = path_in(b, "kernel/usr");
	auto_free char *flat = path_in(b, "kernel");
	auto_free char *merged = str_printf("%s/lib/modules/%s", usr, b->kernel_release);
	auto_free char *out = path_in(b, "out/" STORE_INITRAMFS);
	if (!usr || !flat || !merged || !out)
		return no_memory(e);
	const char *base = stat(merged, &st) == 0 ? usr : flat;
	auto_free char *dir = str_printf("%s/lib/modules/%s", base, b->kernel_release);
	if (!dir)
		return no_memory(e);
	const char *const argv[] = {"depmod", "-b", base, b->kernel_release, NULL};
	int r = tools_run(&b->tools, argv, e);
	struct modules modules;
	if (r == 0)
		r = resolve_modules(b, dir, &modules, e);
	if (r < 0)
		return r;
	tools_say(&b->tools, "making the initramfs with %zu modules", modules.count);
	r = initramfs_write(out, b->agent, dir, &modules, e);
	modules_done(&modules);
	return r;
}

int build_make_disks(struct build *b, struct err *e)
{
	auto_free char *tree = path_in(b, "root");
	auto_free char *root = path_in(b, "out/" STORE_ROOTFS);
	auto_free char *scratch = path_in(b, "out/" STORE_SCRATCH);
	if (!tree || !root || !scratch)
		return no_memory(e);
	tools_say(&b->tools, "making the root filesystem");
	int r = disk_make_root(&b->tools, tree, root, e);
	if (r == 0)
		r = disk_make_scratch(&b->tools, b->recipe.scratch_bytes, scratch, e);
	return r;
}
