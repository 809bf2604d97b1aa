/* Mounts of the root filesystem of slots, and the mount namespace of the runner. */
#define _GNU_SOURCE
#include "job.h"
#include "mount-flags.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* makeMountsSlaves(): mounts of this namespace propagate nowhere; what the machine unmounts is unmounted here, too, and does
 * not stay busy */
static void make_mounts_slaves(struct job *job)
{
	if (syscall(SYS_mount, NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		job_fail(job, "mount");
}

/* bindReadOnly(source, target): without the mounts below `source`, now and later; read-only, nosuid, nodev. A remount sets all flags
 * anew, so noexec of `source` is repeated; the kernel keeps the flags for access times. */
static void bind_read_only(struct job *job)
{
	const char *target = job->text[1];
	unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV;
	struct statvfs filesystem;

	if (syscall(SYS_mount, job->text[0], target, NULL, MS_BIND, NULL) < 0) {
		job_fail(job, "mount");
		return;
	}
	if (statvfs(target, &filesystem) == 0 && (filesystem.f_flag & ST_NOEXEC) != 0)
		flags |= MS_NOEXEC;
	/* Private, since the source may be a slave: what the machine mounts below it must not appear in slots. */
	if (syscall(SYS_mount, NULL, target, NULL, flags, NULL) < 0 ||
	    syscall(SYS_mount, NULL, target, NULL, MS_PRIVATE, NULL) < 0) {
		job_fail(job, "mount");
		syscall(SYS_umount2, target, UMOUNT_NOFOLLOW | MNT_DETACH);
	}
}

/* Whether a node is what it is called, and may be opened. */
static bool is_null_device(const char *path)
{
	struct stat node;
	int opened = open(path, O_RDWR | O_CLOEXEC);

	if (opened < 0)
		return false;
	bool is_null = fstat(opened, &node) == 0 && S_ISCHR(node.st_mode) && node.st_rdev == makedev(1, 3);
	close(opened);
	return is_null;
}

/* mountDevices(target): an overlay of /dev over an empty directory. Its nodes are the machine's devices, but have inodes of
 * their own, so that locks on them (flock(2)) and watches (inotify(7)) are not shared. */
static void mount_devices(struct job *job)
{
	const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NOEXEC;
	const char *target = job->text[0];
	char options[96];
	char null_device[4096];
	int empty = open(target, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (empty < 0) {
		job_fail(job, "open");
		return;
	}
	snprintf(options, sizeof(options), "lowerdir=/dev:/proc/self/fd/%d,redirect_dir=nofollow,metacopy=off", empty);
	snprintf(null_device, sizeof(null_device), "%s/null", target);
	if (syscall(SYS_mount, "overlay", target, "overlay", flags, options) < 0) {
		job_fail(job, "mount");
	} else if (!is_null_device(null_device)) {
		errno = ENXIO;
		job_fail(job, "overlay of /dev");
		syscall(SYS_umount2, target, UMOUNT_NOFOLLOW | MNT_DETACH);
	}
	close(empty);
}

/* mountTmpfs(target): an empty directory of at most 1 MiB for root alone */
static void mount_tmpfs(struct job *job)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (syscall(SYS_mount, "tmpfs", job->text[0], "tmpfs", flags, "size=1m,mode=700") < 0)
		job_fail(job, "mount");
}

/* mountProc(target): mounts a procfs of the pid namespace of this process */
static void mount_proc(struct job *job)
{
	if (syscall(SYS_mount, "proc", job->text[0], "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "") < 0)
		job_fail(job, "mount");
}

const struct operation image_mount_operations[] = {
	{"makeMountsSlaves", "", RESULT_NONE, make_mounts_slaves},
	{"bindReadOnly", "tt", RESULT_NONE, bind_read_only},
	{"mountDevices", "t", RESULT_NONE, mount_devices},
	{"mountTmpfs", "t", RESULT_NONE, mount_tmpfs},
	{"mountProc", "t", RESULT_NONE, mount_proc},
	{NULL, NULL, RESULT_NONE, NULL},
};
