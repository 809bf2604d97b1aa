#include "devices.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "binds.h"
#include "fail.h"
#include "views.h"

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};

static const struct {
	const char *name;
	const char *target;
} links[] = {
	{"fd", "/proc/self/fd"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
	{"stderr", "/proc/self/fd/2"},
	{"ptmx", "pts/ptmx"},
};

static int bind_device(const char *name)
{
	char from[64];
	char to[64];

	snprintf(from, sizeof(from), DEVICES "/%s", name);
	snprintf(to, sizeof(to), IMAGE "/dev/%s", name);
	return binds_add(from, to) < 0 ? -1 : binds_seal(to, 0, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

/* Device nodes cannot be created in a user namespace, so those of the slot are bound over empty files. */
int devices_mount(void)
{
	static const char *const directories[] = {"/dev", "/dev/pts", "/dev/shm"};
	char path[128];

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
		snprintf(path, sizeof(path), VIEWS_STORE "%s", directories[i]);
		if (mkdir(path, 0755) < 0)
			return fail("make %s", path);
	}
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		snprintf(path, sizeof(path), VIEWS_STORE "/dev/%s", devices[i]);
		if (views_make_empty(path) < 0)
			return -1;
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		snprintf(path, sizeof(path), VIEWS_STORE "/dev/%s", links[i].name);
		if (symlink(links[i].target, path) < 0)
			return fail("link %s", path);
	}
	return devices_bind();
}

int devices_bind(void)
{
	if (binds_add(VIEWS "/dev", IMAGE "/dev") < 0)
		return -1;
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (bind_device(devices[i]) < 0)
			return -1;
	return 0;
}
