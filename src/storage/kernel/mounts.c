/* Filesystems: an image on a loop device, mounted; docks, and mounts with translated ids in them. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of mount(2) and umount(2); <sys/mount.h> and <linux/mount.h> exclude each other in some versions of glibc. */
#ifndef MS_BIND
#define MS_BIND 4096
#endif
#ifndef MS_SHARED
#define MS_SHARED (1 << 20)
#endif
#ifndef MNT_DETACH
#define MNT_DETACH 2
#endif
#ifndef UMOUNT_NOFOLLOW
#define UMOUNT_NOFOLLOW 8
#endif

/* How often another process may take the free loop device before us. */
#define LOOP_ATTEMPTS 64

#define SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME)

/* Binds a free loop device to the image and answers with its descriptor, its number in *number. The device frees itself
 * when nobody uses it any more. */
static int loop_over(int image, int *number)
{
	struct loop_config config = {.fd = (unsigned int)image, .block_size = 4096};
	char path[32];
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return -1;
	/* Direct: the pages of the image are not kept in memory a second time. */
	config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
	for (int attempt = 0; attempt < LOOP_ATTEMPTS; attempt++) {
		*number = ioctl(control, LOOP_CTL_GET_FREE);
		if (*number < 0)
			break;
		snprintf(path, sizeof(path), "/dev/loop%d", *number);
		int loop = open(path, O_RDWR | O_CLOEXEC);
		if (loop < 0)
			break;
		if (ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
			close(control);
			return loop;
		}
		int error = errno;
		close(loop);
		errno = error;
		if (error != EBUSY)
			break;
	}
	int error = errno;
	close(control);
	errno = error;
	return -1;
}

static int set_option(int context, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, context, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0);
}

/* Answers with a descriptor of the new mount, which has no place yet. */
static int make_ext4(struct job *job, const char *device)
{
	int context = (int)syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC);
	int mounted = -1;

	if (context < 0) {
		job_fail(job, "fsopen");
		return -1;
	}
	/* noinit_itable: inode tables are holes, which read as the zeros they should be; writing zeros would fill them. */
	if (set_option(context, "source", device) < 0 || set_option(context, "errors", "remount-ro") < 0 ||
	    set_option(context, "noinit_itable", NULL) < 0)
		job_fail(job, "fsconfig");
	else if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		job_fail(job, "mount");
	else if ((mounted = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, SAFE)) < 0)
		job_fail(job, "fsmount");
	close(context);
	return mounted;
}

static int place(int mounted, const char *target)
{
	return (int)syscall(SYS_move_mount, mounted, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* mountImage(image, target): number of the loop device. The caller holds the lock of the image. */
static void mount_image(struct job *job)
{
	char device[32];
	int number = -1;
	int loop = loop_over((int)job->number[0], &number);

	if (loop < 0) {
		job_fail(job, "loop");
		return;
	}
	snprintf(device, sizeof(device), "/dev/loop%d", number);
	int mounted = make_ext4(job, device);
	if (mounted >= 0) {
		if (place(mounted, job->text[0]) < 0)
			job_fail(job, "move_mount");
		close(mounted);
	}
	close(loop);
	job->result[0] = number;
}

/* unmount(target, lazily) */
static void unmount(struct job *job)
{
	if (syscall(SYS_umount2, job->text[0], UMOUNT_NOFOLLOW | (job->number[0] ? MNT_DETACH : 0)) < 0)
		job_fail(job, "umount2");
}

/* makeDock(directory): a mount of its own from which later mounts reach the slots that follow it */
static void make_dock(struct job *job)
{
	const char *directory = job->text[0];

	if (syscall(SYS_mount, directory, directory, NULL, MS_BIND, NULL) < 0) {
		job_fail(job, "mount");
		return;
	}
	if (syscall(SYS_mount, NULL, directory, NULL, MS_SHARED, NULL) < 0) {
		job_fail(job, "mount");
		syscall(SYS_umount2, directory, MNT_DETACH);
	}
}

/* A small filesystem of empty directories, read-only; -1 with the error noted. `names` is cut up. */
static int shelf_of(struct job *job, char *names)
{
	struct mount_attr sealed = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC};
	int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	int shelf = -1;
	char *name;

	if (context < 0) {
		job_fail(job, "fsopen");
		return -1;
	}
	if (set_option(context, "mode", "0755") < 0 || set_option(context, "size", "64k") < 0)
		job_fail(job, "fsconfig");
	else if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		job_fail(job, "mount");
	else if ((shelf = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, SAFE)) < 0)
		job_fail(job, "fsmount");
	close(context);
	while (shelf >= 0 && job->error == 0 && (name = strsep(&names, "/")) != NULL)
		if (mkdirat(shelf, name, 0755) < 0 || fchmodat(shelf, name, 0755, 0) < 0)
			job_fail(job, "mkdirat");
	if (shelf >= 0 && job->error == 0 &&
	    syscall(SYS_mount_setattr, shelf, "", AT_EMPTY_PATH, &sealed, sizeof(sealed)) < 0)
		job_fail(job, "mount_setattr");
	if (shelf >= 0 && job->error != 0) {
		close(shelf);
		return -1;
	}
	return shelf;
}

/* makeShelf(target, names): mounts directories of these names, which "/" separates, for other mounts */
static void make_shelf(struct job *job)
{
	int shelf = shelf_of(job, job->text[1]);

	if (shelf < 0)
		return;
	if (place(shelf, job->text[0]) < 0)
		job_fail(job, "move_mount");
	close(shelf);
}

/* A second mount of the same filesystem, its ids translated, without a place yet. */
static int translated(struct job *job, int root, int user_namespace, int read_only)
{
	struct mount_attr attributes = {
		.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (read_only ? MOUNT_ATTR_RDONLY : 0),
		.userns_fd = (uint64_t)user_namespace,
	};
	int tree = (int)syscall(SYS_open_tree, root, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	if (tree < 0) {
		job_fail(job, "open_tree");
		return -1;
	}
	if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) < 0) {
		job_fail(job, "mount_setattr");
		close(tree);
		return -1;
	}
	return tree;
}

/* attachTranslated(root, userNamespace, readOnly, target) */
static void attach_translated(struct job *job)
{
	int tree = translated(job, (int)job->number[0], (int)job->number[1], job->number[2] != 0);

	if (tree < 0)
		return;
	if (place(tree, job->text[0]) < 0)
		job_fail(job, "move_mount");
	close(tree);
}

/* openTranslated(root, userNamespace, readOnly): descriptor of the mount; it is gone when the descriptor is closed */
static void open_translated(struct job *job)
{
	job->result[0] = translated(job, (int)job->number[0], (int)job->number[1], job->number[2] != 0);
}

/* trimFilesystem(root): bytes given back to the image as holes */
static void trim_filesystem(struct job *job)
{
	struct fstrim_range range = {.len = UINT64_MAX};

	if (ioctl((int)job->number[0], FITRIM, &range) < 0)
		job_fail(job, "FITRIM");
	else
		job->result[0] = (int64_t)range.len;
}

const struct verb mount_verbs[] = {
	{"mountImage", "nt", ANSWER_NUMBER, mount_image},
	{"unmount", "tn", ANSWER_NOTHING, unmount},
	{"makeDock", "t", ANSWER_NOTHING, make_dock},
	{"makeShelf", "tt", ANSWER_NOTHING, make_shelf},
	{"attachTranslated", "nnnt", ANSWER_NOTHING, attach_translated},
	{"openTranslated", "nnn", ANSWER_NUMBER, open_translated},
	{"trimFilesystem", "n", ANSWER_NUMBER, trim_filesystem},
	{NULL, NULL, ANSWER_NOTHING, NULL},
};
