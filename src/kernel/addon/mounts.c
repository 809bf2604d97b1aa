/* Mounts: disks on loop devices, the docks of slots, and idmapped mounts. */
#define _GNU_SOURCE
#include "job.h"
#include "mount-flags.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Number of attempts to get a free loop device, which another process can take first. */
#define LOOP_ATTEMPTS 64

#define SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME)

/* Configures a free loop device for a disk. Returns a descriptor of the device and stores its number, or returns -1 with
 * errno. The kernel frees the device after its last use (LO_FLAGS_AUTOCLEAR). */
static int open_loop_device(int disk, int *number)
{
	struct loop_config config = {.fd = (unsigned int)disk, .block_size = 4096};
	char path[32];
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return -1;
	/* Direct I/O: the page cache does not hold the blocks of the disk a second time. */
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

/* findLoopDevice(): returns the number of a loop device that can be configured now. Another process can take it first. */
static void find_loop_device(struct job *job)
{
	char path[32];
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
	int loop = -1;

	if (number >= 0) {
		snprintf(path, sizeof(path), "/dev/loop%d", number);
		loop = open(path, O_RDWR | O_CLOEXEC);
	}
	if (loop < 0)
		job_fail(job, "loop");
	else
		close(loop);
	if (control >= 0)
		close(control);
	job->result[0] = number;
}

static int set_option(int context, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, context, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0);
}

/* Returns a descriptor of a new mount that is not attached to the tree yet, or -1 with the error recorded. */
static int create_ext4_mount(struct job *job, const char *device)
{
	int context = (int)syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC);
	int mounted = -1;

	if (context < 0) {
		job_fail(job, "fsopen");
		return -1;
	}
	/* noinit_itable: inode tables are holes, which read as zeros; initializing them would allocate their blocks. */
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

static int attach_mount(int mounted, const char *target)
{
	return (int)syscall(SYS_move_mount, mounted, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* mountDisk(disk, target): returns the number of the loop device. The caller holds the lock of the disk. */
static void mount_disk(struct job *job)
{
	char device[32];
	int number = -1;
	int loop = open_loop_device((int)job->number[0], &number);

	if (loop < 0) {
		job_fail(job, "loop");
		return;
	}
	snprintf(device, sizeof(device), "/dev/loop%d", number);
	int mounted = create_ext4_mount(job, device);
	if (mounted >= 0) {
		if (attach_mount(mounted, job->text[0]) < 0)
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

/* makeDock(directory): a shared mount, so that later mounts below it propagate to slots, which bind it as a slave */
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

/* Creates a small read-only tmpfs with empty directories. Splits `names` in place. Returns a descriptor of the mount, or
 * -1 with the error recorded. */
static int create_directories_mount(struct job *job, char *names)
{
	struct mount_attr sealed = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC};
	int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	int tree = -1;
	char *name;

	if (context < 0) {
		job_fail(job, "fsopen");
		return -1;
	}
	if (set_option(context, "mode", "0755") < 0 || set_option(context, "size", "64k") < 0)
		job_fail(job, "fsconfig");
	else if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		job_fail(job, "mount");
	else if ((tree = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, SAFE)) < 0)
		job_fail(job, "fsmount");
	close(context);
	while (tree >= 0 && job->error == 0 && (name = strsep(&names, "/")) != NULL)
		if (mkdirat(tree, name, 0755) < 0 || fchmodat(tree, name, 0755, 0) < 0)
			job_fail(job, "mkdirat");
	if (tree >= 0 && job->error == 0 &&
	    syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &sealed, sizeof(sealed)) < 0)
		job_fail(job, "mount_setattr");
	if (tree >= 0 && job->error != 0) {
		close(tree);
		return -1;
	}
	return tree;
}

/* mountDirectories(target, names): mounts a read-only tmpfs with these empty directories, separated by "/", as mount
 * points */
static void mount_directories(struct job *job)
{
	int tree = create_directories_mount(job, job->text[1]);

	if (tree < 0)
		return;
	if (attach_mount(tree, job->text[0]) < 0)
		job_fail(job, "move_mount");
	close(tree);
}

/* Returns a descriptor of an idmapped mount (mount_setattr(2)) of the same filesystem, not attached to the tree yet, or
 * -1 with the error recorded. */
static int create_idmapped_mount(struct job *job, int root, int user_namespace, int read_only)
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

/* User and mode of a root directory, as mkfs makes it. */
#define ROOT_USER 1000
#define ROOT_MODE 0755

static int remove_acl(int root, const char *name)
{
	/* Looked for first: removing starts a transaction of the filesystem even without an ACL. */
	if (fgetxattr(root, name, NULL, 0) < 0)
		return errno == ENODATA || errno == EOPNOTSUPP ? 0 : -1;
	return fremovexattr(root, name);
}

/* Makes a root directory usable again after code changed it: it belongs to the user of jails, who may read, write and
 * search it, without ACLs. A mode that leaves the user these rights is kept. */
static int restore_root(int root)
{
	struct stat now;

	if (fstat(root, &now) < 0)
		return -1;
	if ((now.st_uid != ROOT_USER || now.st_gid != ROOT_USER) && fchown(root, ROOT_USER, ROOT_USER) < 0)
		return -1;
	if (remove_acl(root, "system.posix_acl_default") < 0 || remove_acl(root, "system.posix_acl_access") < 0)
		return -1;
	bool is_usable = (now.st_mode & S_IRWXU) == S_IRWXU && (now.st_mode & (S_ISUID | S_ISGID | S_ISVTX)) == 0;
	return is_usable ? 0 : fchmod(root, ROOT_MODE);
}

/* mountImage(root, userNamespace, readOnly, target): leaves the root directory as it is */
static void mount_image(struct job *job)
{
	int tree = create_idmapped_mount(job, (int)job->number[0], (int)job->number[1], job->number[2] != 0);

	if (tree < 0)
		return;
	if (attach_mount(tree, job->text[0]) < 0)
		job_fail(job, "move_mount");
	close(tree);
}

/* mountIdmapped(root, userNamespace, readOnly, target): restores the root directory first */
static void mount_idmapped(struct job *job)
{
	/* A filesystem with errors is read-only (EROFS), and its next mount checks it. */
	if (restore_root((int)job->number[0]) < 0 && errno != EROFS)
		job_fail(job, "restore");
	else
		mount_image(job);
}

/* openIdmapped(root, userNamespace, readOnly): returns a descriptor of a mount that ends when it is closed */
static void open_idmapped(struct job *job)
{
	job->result[0] = create_idmapped_mount(job, (int)job->number[0], (int)job->number[1], job->number[2] != 0);
}

/* trimFilesystem(root): returns the number of bytes that became holes in the disk */
static void trim_filesystem(struct job *job)
{
	struct fstrim_range range = {.len = UINT64_MAX};

	if (ioctl((int)job->number[0], FITRIM, &range) < 0)
		job_fail(job, "FITRIM");
	else
		job->result[0] = (int64_t)range.len;
}

const struct operation mount_operations[] = {
	{"findLoopDevice", "", RESULT_NUMBER, find_loop_device},
	{"mountDisk", "nt", RESULT_NUMBER, mount_disk},
	{"unmount", "tn", RESULT_NONE, unmount},
	{"makeDock", "t", RESULT_NONE, make_dock},
	{"mountDirectories", "tt", RESULT_NONE, mount_directories},
	{"mountIdmapped", "nnnt", RESULT_NONE, mount_idmapped},
	{"mountImage", "nnnt", RESULT_NONE, mount_image},
	{"openIdmapped", "nnn", RESULT_NUMBER, open_idmapped},
	{"trimFilesystem", "n", RESULT_NUMBER, trim_filesystem},
	{NULL, NULL, RESULT_NONE, NULL},
};
