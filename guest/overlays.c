#include "overlays.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "binds.h"
#include "fail.h"
#include "ids.h"
#include "mounts.h"

#define LAYERS "/scratch/layers"

/* The layer above each belongs to the slot; it holds nothing but what hides entries of the image. */
const struct overlay_part overlay_parts[OVERLAY_PARTS] = {
	{"root", ""},
	{"usr", "/usr"},
	{"node", "/opt/glovebox/bin"},
};

/* Below /usr: configuration and data of the machine, where the filesystem hierarchy standard has none. */
static const char *const parents[] = {"local"};
static const char *const hidden[] = {"etc", "home", "var", "local/etc", "local/home", "local/var"};

bool overlays_hide(const char *part, const char *path, const char *name)
{
	size_t length = strlen(path);

	if (strcmp(part, "usr") != 0)
		return false;
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
		const char *rest = hidden[i] + (length == 0 ? 0 : length + 1);
		bool is_below = length == 0 || (strncmp(hidden[i], path, length) == 0 && hidden[i][length] == '/');
		if (is_below && strcmp(rest, name) == 0)
			return true;
	}
	return false;
}

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
	/* A stored image has the files that all jails need in a layer of their own above it. */
	bool has_top = path[0] == '\0' && is_directory(SHARED_IMAGE "/top");

	snprintf(covered, sizeof(covered), IMAGE "%s", path);
	snprintf(options, sizeof(options),
		 "lowerdir=" LAYERS "/%s%s:" SHARED_IMAGE "/%s,redirect_dir=nofollow,metacopy=off,index=off", name,
		 has_top ? ":" SHARED_IMAGE "/top" : "", name);
	if (mount("overlay", covered, "overlay", MS_RDONLY | SAFE, options) < 0)
		return fail("cover %s with an overlay, which only this slot sees", covered);
	return 0;
}

int overlays_mount(void)
{
	char layer[64];

	if (make_directory(IMAGE) < 0 || make_directory(LAYERS) < 0)
		return -1;
	for (size_t i = 0; i < OVERLAY_PARTS; i++) {
		snprintf(layer, sizeof(layer), LAYERS "/%s", overlay_parts[i].name);
		if (make_directory(layer) < 0)
			return -1;
	}
	if (hide_entries() < 0)
		return -1;
	for (size_t i = 0; i < OVERLAY_PARTS; i++) {
		/* An image may lack one, or have a link in its place: nothing is mounted there then. The root of a stored
		 * image has its own /usr. */
		snprintf(layer, sizeof(layer), SHARED_IMAGE "/%s", overlay_parts[i].name);
		if (i > 0 && (!is_directory(layer) || mounts_check_point(overlay_parts[i].path) < 0))
			continue;
		if (cover(overlay_parts[i].name, overlay_parts[i].path) < 0)
			return -1;
	}
	return 0;
}

/* Makes a directory of the disk, which only the overlay shows to programs. Stores whether it is new. */
static int make_on_disk(const char *path, bool *is_new)
{
	bool is_made = mkdir(path, 0755) == 0;

	if (!is_made && (errno != EEXIST || !is_directory(path)))
		return fail("make %s", path);
	if (is_new != NULL)
		*is_new = is_made;
	return 0;
}

/* userxattr: in a user namespace, the overlay keeps its marks in attributes that a user can have; programs can neither see nor
 * set these through it. */
static int cover_writable(const char *disk, const char *image, const char *name, const char *path, bool *is_new)
{
	char covered[64];
	char top[DOCK_PATH_BYTES + 8];
	char options[6 * DOCK_PATH_BYTES];
	char upper[DOCK_PATH_BYTES + 16];
	char work[DOCK_PATH_BYTES + 16];

	snprintf(covered, sizeof(covered), IMAGE "%s", path);
	snprintf(upper, sizeof(upper), "%s/upper/%s", disk, name);
	snprintf(work, sizeof(work), "%s/work/%s", disk, name);
	snprintf(top, sizeof(top), "%s/top", image);
	if (make_on_disk(upper, is_new) < 0 || make_on_disk(work, NULL) < 0)
		return -1;
	/* A stored image has the files that all jails need in a layer of their own above it. */
	bool has_top = path[0] == '\0' && is_directory(top);
	snprintf(options, sizeof(options),
		 "lowerdir=" LAYERS "/%s%s%s:%s/%s,upperdir=%s,workdir=%s,userxattr,redirect_dir=nofollow,metacopy=off,index=off",
		 name, has_top ? ":" : "", has_top ? top : "", image, name, upper, work);
	if (mount("overlay", covered, "overlay", SAFE, options) < 0)
		return fail("mount the disk of the sandbox at %s", covered);
	return 0;
}

/* What an image may lack. Nothing but its own root could have put a link there, and then it is not followed. */
static int make_mount_points(void)
{
	static const char *const points[] = {"/proc", "/dev", "/tmp", "/run", "/sys"};
	char path[32];

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		snprintf(path, sizeof(path), IMAGE "%s", points[i]);
		if (make_directory(path) < 0 || mounts_check_point(points[i]) < 0)
			return -1;
	}
	return 0;
}

int overlays_mount_writable(const char *disk_entry, const char *image_entry)
{
	char disk[DOCK_PATH_BYTES];
	char image[DOCK_PATH_BYTES];
	char path[DOCK_PATH_BYTES + 16];
	bool is_new = false;

	if (mounts_find_in_dock(disk, disk_entry) < 0 || mounts_find_in_dock(image, image_entry) < 0)
		return -1;
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", disk, i == 0 ? "upper" : "work");
		if (make_on_disk(path, NULL) < 0)
			return -1;
	}
	for (size_t i = 0; i < OVERLAY_PARTS; i++) {
		snprintf(path, sizeof(path), "%s/%s", image, overlay_parts[i].name);
		if (i > 0 && (!is_directory(path) || mounts_check_point(overlay_parts[i].path) < 0))
			continue;
		if (cover_writable(disk, image, overlay_parts[i].name, overlay_parts[i].path, i == 0 ? &is_new : NULL) < 0)
			return -1;
	}
	/* In an image, the home belongs to root, since a run gets one of its own mounted there. */
	if (is_new && mounts_check_point(SANDBOX_HOME) == 0 && lchown(IMAGE SANDBOX_HOME, JAIL_UID, JAIL_GID) < 0)
		return fail("give the home to its user");
	return make_mount_points();
}
