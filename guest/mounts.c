#include "mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "binds.h"
#include "cgroup-mount.h"
#include "code-file.h"
#include "devices.h"
#include "fail.h"
#include "ids.h"
#include "overlays.h"
#include "proc.h"
#include "views.h"

/* One inode takes about 1 KiB of kernel memory that no size= counts; small files get 4 KiB each of the size. */
#define BYTES_PER_INODE 4096u
#define INODES_MIN 1024u
#define INODES_MAX 262144u

/* Pseudo-terminals of one jail. */
#define PTYS_MAX 64

/* BOUNDARY: the image is not trusted. A symbolic link in the path of a mount point would redirect the mount, so each
 * component must be a directory. The check stays valid, since the image is read-only to everything in the slot. */
int mounts_check_point(const char *path)
{
	int at = open(IMAGE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char name[NAME_MAX + 1];

	for (const char *part = path; at >= 0 && *part != '\0';) {
		part++;
		size_t length = strcspn(part, "/");
		if (length >= sizeof(name)) {
			close(at);
			errno = ENAMETOOLONG;
			return fail("the image's %s", path);
		}
		memcpy(name, part, length);
		name[length] = '\0';
		part += length;
		int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(at);
		at = next;
	}
	if (at < 0)
		return fail("the image's %s", path);
	close(at);
	return 0;
}

static int check_mount_points(void)
{
	static const char *const points[] = {"/proc", "/dev", "/tmp", "/run", "/sys"};

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		if (mounts_check_point(points[i]) < 0)
			return -1;
	return 0;
}

int mounts_prepare_slot(void)
{
	/* Mounts made here propagate nowhere, and only mounts in the dock propagate here: a slave mount stays a slave, a
	 * private mount stays private (mount_namespaces(7)). */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return fail("make the mounts of the slot slaves");
	if (overlays_mount() < 0 || check_mount_points() < 0 || views_open() < 0)
		return -1;
	if (binds_add(VIEWS_NOTHING, IMAGE "/run") < 0 || devices_mount() < 0)
		return -1;
	return proc_choose_masks();
}

int mounts_prepare_run(const struct preparation *p)
{
	if ((p->home != NULL && mounts_check_point(p->home) < 0) || (p->volumes != NULL && mounts_check_point(VOLUMES) < 0))
		return -1;
	return views_make(p);
}

/* Binds the files that show the limits of the run over those of the machine. */
static int mount_views(const struct preparation *p)
{
	static const struct {
		const char *view;
		const char *place;
	} views[] = {
		{"stat", IMAGE "/proc/stat"},
		{"cpuinfo", IMAGE "/proc/cpuinfo"},
		{"meminfo", IMAGE "/proc/meminfo"},
		{"sys", IMAGE "/sys"},
	};
	char path[VIEW_PATH_BYTES];

	for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
		views_path(path, VIEWS, p, views[i].view);
		if (binds_add(path, views[i].place) < 0)
			return -1;
	}
	return cgroup_mount_add(p);
}

static uint64_t inodes_for(uint64_t bytes)
{
	uint64_t inodes = bytes / BYTES_PER_INODE;

	return inodes < INODES_MIN ? INODES_MIN : inodes > INODES_MAX ? INODES_MAX : inodes;
}

int mounts_add_tmpfs(const char *path, unsigned long flags, const char *owner, uint64_t bytes)
{
	char options[160];

	snprintf(options, sizeof(options), "%s,size=%" PRIu64 ",nr_inodes=%" PRIu64, owner, bytes, inodes_for(bytes));
	return mount("tmpfs", path, "tmpfs", flags, options) < 0 ? fail("mount %s", path) : 0;
}

/* Checks that storage is mounted at an entry, which then has another device number. Data written to the bare directory
 * would be lost. */
static int require_attached(const char *entry)
{
	struct stat dock;
	struct stat storage;

	if (lstat(DOCK, &dock) < 0 || lstat(entry, &storage) < 0)
		return fail("look at %s", entry);
	if (S_ISDIR(storage.st_mode) && storage.st_dev != dock.st_dev)
		return 0;
	errno = ENXIO;
	return fail("no storage is mounted at %s", entry);
}

int mounts_find_in_dock(char path[DOCK_PATH_BYTES], const char *name)
{
	snprintf(path, DOCK_PATH_BYTES, DOCK "/%s", name);
	return require_attached(path);
}

/* Binds an entry of the dock as a private mount of the jail, which later changes of the dock do not affect. Volumes are
 * mounts below one entry and are bound together. */
int mounts_add_storage(const char *path, const char *name)
{
	char entry[DOCK_PATH_BYTES];

	if (mounts_find_in_dock(entry, name) < 0)
		return -1;
	if (mount(entry, path, NULL, MS_BIND | MS_REC, NULL) < 0)
		return fail("bind %s to %s", entry, path);
	return mount(NULL, path, NULL, MS_PRIVATE | MS_REC, NULL) < 0 ? fail("make the storage mount private") : 0;
}

static int mount_home(const struct preparation *p)
{
	char home[sizeof(IMAGE) + 1024 + 1];
	char user[64];

	snprintf(home, sizeof(home), IMAGE "%s", p->home);
	if (p->dock != NULL)
		return mounts_add_storage(home, p->dock);
	snprintf(user, sizeof(user), "mode=0755,uid=%u,gid=%u", JAIL_UID, JAIL_GID);
	return mounts_add_tmpfs(home, SAFE, user, p->home_bytes);
}

static int mount_volumes(const struct preparation *p)
{
	return p->volumes == NULL ? 0 : mounts_add_storage(IMAGE VOLUMES, p->volumes);
}

static int mount_writable(uint64_t tmp_bytes)
{
	char ptys[64];

	snprintf(ptys, sizeof(ptys), "newinstance,ptmxmode=0666,mode=0620,max=%d", PTYS_MAX);
	if (mounts_add_tmpfs(IMAGE "/tmp", SAFE, "mode=1777", tmp_bytes) < 0 ||
	    mounts_add_tmpfs(IMAGE "/dev/shm", SEALED, "mode=1777", tmp_bytes) < 0)
		return -1;
	if (mount("devpts", IMAGE "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, ptys) < 0)
		return fail("mount /dev/pts");
	return 0;
}

int mounts_enter_image(void)
{
	if (chdir(IMAGE) < 0)
		return fail("enter the image");
	/* Both names the same: the old root lands on top of the new one, and detaching it uncovers that
	 * (pivot_root(2), "pivot_root(".", ".")"). No directory for it is needed in the image. */
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return fail("pivot_root");
	if (umount2(".", MNT_DETACH) < 0)
		return fail("detach the slot's root");
	return chdir("/") < 0 ? fail("enter the new root") : 0;
}

int mounts_make_own(const struct preparation *p)
{
	return proc_mount() < 0 || mount_views(p) < 0 ? -1 : mount_writable(p->tmp_bytes);
}

int mounts_enter(const struct preparation *p)
{
	if (mounts_make_own(p) < 0 || mount_home(p) < 0 || mount_volumes(p) < 0)
		return -1;
	int code = code_file_mount(p);
	return code == -1 || mounts_enter_image() < 0 ? -1 : code;
}

int mounts_clone_storage(const char *name)
{
	struct mount_attr private = {.propagation = MS_PRIVATE};
	char entry[DOCK_PATH_BYTES];

	if (mounts_find_in_dock(entry, name) < 0)
		return -1;
	int storage = (int)syscall(SYS_open_tree, AT_FDCWD, entry, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (storage < 0)
		return fail("take %s", entry);
	if (syscall(SYS_mount_setattr, storage, "", AT_EMPTY_PATH | AT_RECURSIVE, &private, sizeof(private)) < 0)
		return fail("make the storage mount private");
	return storage;
}

int mounts_attach_storage(int storage, const char *path)
{
	long moved = syscall(SYS_move_mount, storage, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);

	return moved < 0 ? fail("put storage at %s", path) : 0;
}
