#include "overlays.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "binds.h"
#include "fail.h"
#include "mounts.h"

#define LAYERS "/scratch/layers"

/* The mounts that the image consists of: an overlay shows nothing that is mounted below its layers. The layer above each
 * belongs to the slot; it holds nothing but what hides entries of the image. */
static const struct {
	const char *name; /* in SHARED_IMAGE and LAYERS */
	const char *path;
} mounts[] = {
	{"root", ""},
	{"usr", "/usr"},
	{"node", "/opt/glovebox/bin"},
};

/* Below /usr: configuration and data of the machine, where the filesystem hierarchy standard has none. */
static const char *const parents[] = {"local"};
static const char *const hidden[] = {"etc", "home", "var", "local/etc", "local/home", "local/var"};

static bool is_directory(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int make_directory(const char *path)
{
	return mkdir(path, 0755) < 0 && errno != EEXIST ? fail("make %s", path) : 0;
}

/* A character device with the number 0 is a whiteout: the overlay shows no entry there. */
static int hide_entries(void)
{
	char path[96];

	for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
		snprintf(path, sizeof(path), SHARED_IMAGE "/usr/%s", parents[i]);
		if (!is_directory(path))
			continue;
		snprintf(path, sizeof(path), LAYERS "/usr/%s", parents[i]);
		if (make_directory(path) < 0)
			return -1;
	}
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
		struct stat status;
		snprintf(path, sizeof(path), SHARED_IMAGE "/usr/%s", hidden[i]);
		if (lstat(path, &status) < 0)
			continue;
		snprintf(path, sizeof(path), LAYERS "/usr/%s", hidden[i]);
		if (mknod(path, S_IFCHR, makedev(0, 0)) < 0)
			return fail("hide %s of /usr", hidden[i]);
	}
	return 0;
}

static int cover(const char *name, const char *path)
{
	char covered[64];
	char options[192];

	snprintf(covered, sizeof(covered), IMAGE "%s", path);
	snprintf(options, sizeof(options),
		 "lowerdir=" LAYERS "/%s:" SHARED_IMAGE "/%s,redirect_dir=nofollow,metacopy=off,index=off", name, name);
	if (mount("overlay", covered, "overlay", MS_RDONLY | SAFE, options) < 0)
		return fail("cover %s with an overlay, which only this slot sees", covered);
	return 0;
}

int overlays_mount(void)
{
	char layer[64];

	if (make_directory(IMAGE) < 0 || make_directory(LAYERS) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		snprintf(layer, sizeof(layer), LAYERS "/%s", mounts[i].name);
		if (make_directory(layer) < 0)
			return -1;
	}
	if (hide_entries() < 0)
		return -1;
	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		/* An image may lack one, or have a link in its place: nothing is mounted there then. */
		if (i > 0 && mounts_check_point(mounts[i].path) < 0)
			continue;
		if (cover(mounts[i].name, mounts[i].path) < 0)
			return -1;
	}
	return 0;
}
