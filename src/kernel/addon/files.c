/* Files of a thread or volume, reached from a descriptor.
 *
 * BOUNDARY: what lies below the descriptor was made by code in a sandbox, and may be changed by it at any moment. A path
 * is resolved by the kernel beneath the descriptor, through directories only; a name is one component. */
#define _GNU_SOURCE
#include "beneath.h"
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

int open_beneath(int fd, const char *path, uint64_t flags, uint64_t mode)
{
	struct open_how how = {
		.flags = flags | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC,
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};

	/* EAGAIN: a rename somewhere on the machine crossed the walk; openat2(2) asks to try again. */
	for (int attempt = 0; attempt < 64; attempt++) {
		int opened = (int)syscall(SYS_openat2, fd, path, &how, sizeof(how));
		if (opened >= 0 || errno != EAGAIN)
			return opened;
	}
	return -1;
}

static int is_component(struct job *job, const char *name)
{
	if (name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strchr(name, '/') == NULL)
		return 1;
	errno = EINVAL;
	job_fail(job, "name");
	return 0;
}

/* openBeneath(directory, path, flags, mode): descriptor */
static void open_path(struct job *job)
{
	job->result[0] = open_beneath((int)job->number[0], job->text[0], (uint64_t)job->number[1], (uint64_t)job->number[2]);
	if (job->result[0] < 0)
		job_fail(job, "openat2");
}

static void tell(struct job *job, const struct stat *stat)
{
	job->result[0] = stat->st_mode;
	job->result[1] = stat->st_size;
	job->result[2] = stat->st_mtim.tv_sec * 1000 + stat->st_mtim.tv_nsec / 1000000;
	job->result[3] = (int64_t)stat->st_ino;
	job->result[4] = (int64_t)stat->st_dev;
	job->result[5] = (int64_t)stat->st_nlink;
	job->result[6] = stat->st_uid;
	job->result[7] = stat->st_gid;
	job->result[8] = stat->st_blocks;
}

/* statName(directory, name): numbers as tell() orders them. A link is told of itself. */
static void stat_name(struct job *job)
{
	struct stat stat;

	if (!is_component(job, job->text[0]))
		return;
	if (fstatat((int)job->number[0], job->text[0], &stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		job_fail(job, "fstatat");
	else
		tell(job, &stat);
}

/* statDescriptor(descriptor): numbers as tell() orders them */
static void stat_descriptor(struct job *job)
{
	struct stat stat;

	if (fstat((int)job->number[0], &stat) < 0)
		job_fail(job, "fstat");
	else
		tell(job, &stat);
}

/* makeDirectory(root, unfinished, directory, name, mode, uid, gid): appears under its name with its owner, or not at all.
 * Until then it is `unfinished`, in the root: fails at "unfinished" with EEXIST when that name is taken. */
static void make_directory(struct job *job)
{
	int root = (int)job->number[0], directory = (int)job->number[1];
	const char *unfinished = job->text[0], *name = job->text[1];

	if (!is_component(job, unfinished) || !is_component(job, name))
		return;
	if (mkdirat(root, unfinished, 0700) < 0) {
		job_fail(job, "unfinished");
		return;
	}
	int made = open_beneath(root, unfinished, O_RDONLY | O_DIRECTORY, 0);
	if (made < 0)
		job_fail(job, "openat2");
	else if (fchmod(made, (mode_t)job->number[2]) < 0)
		job_fail(job, "fchmod");
	else if (fchown(made, (uid_t)job->number[3], (gid_t)job->number[4]) < 0)
		job_fail(job, "fchown");
	else if (syscall(SYS_renameat2, root, unfinished, directory, name, RENAME_NOREPLACE) < 0)
		job_fail(job, "renameat2");
	if (made >= 0)
		close(made);
	if (job->error != 0)
		unlinkat(root, unfinished, AT_REMOVEDIR);
}

/* removeName(directory, name, isDirectory) */
static void remove_name(struct job *job)
{
	if (!is_component(job, job->text[0]))
		return;
	if (unlinkat((int)job->number[0], job->text[0], job->number[1] ? AT_REMOVEDIR : 0) < 0)
		job_fail(job, "unlinkat");
}

/* removeLeftovers(directory, names): files, links and empty directories with these names, which "/" separates */
static void remove_leftovers(struct job *job)
{
	int directory = (int)job->number[0];
	char *rest = job->text[0], *name;

	while ((name = strsep(&rest, "/")) != NULL) {
		if (!is_component(job, name))
			return;
		if (unlinkat(directory, name, 0) == 0 || errno == ENOENT)
			continue;
		/* Whatever is in a directory was put there by code in the sandbox, which may keep it. */
		if (errno != EISDIR || (unlinkat(directory, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY)) {
			job_fail(job, "unlinkat");
			return;
		}
	}
}

/* renameName(fromDirectory, from, toDirectory, to, mayReplace) */
static void rename_name(struct job *job)
{
	unsigned int flags = job->number[2] ? 0 : RENAME_NOREPLACE;

	if (!is_component(job, job->text[0]) || !is_component(job, job->text[1]))
		return;
	if (syscall(SYS_renameat2, (int)job->number[0], job->text[0], (int)job->number[1], job->text[1], flags) < 0)
		job_fail(job, "renameat2");
}

/* publishFile(file, root, unfinished, directory, name): gives an unnamed file (O_TMPFILE) its name. In place of what had
 * it only by a rename, for which the file is `unfinished` first, in the root: fails at "unfinished" with EEXIST when that
 * name is taken. The link goes through /proc, which needs no capability; AT_EMPTY_PATH would. */
static void publish_file(struct job *job)
{
	int root = (int)job->number[1], directory = (int)job->number[2];
	const char *unfinished = job->text[0], *name = job->text[1];
	char file[40];

	if (!is_component(job, unfinished) || !is_component(job, name))
		return;
	snprintf(file, sizeof(file), "/proc/self/fd/%d", (int)job->number[0]);
	if (linkat(AT_FDCWD, file, directory, name, AT_SYMLINK_FOLLOW) == 0)
		return;
	if (errno != EEXIST) {
		job_fail(job, "linkat");
		return;
	}
	if (linkat(AT_FDCWD, file, root, unfinished, AT_SYMLINK_FOLLOW) < 0) {
		job_fail(job, "unfinished");
		return;
	}
	if (renameat(root, unfinished, directory, name) < 0) {
		job_fail(job, "renameat");
		unlinkat(root, unfinished, 0);
	}
}

/* readDirectory(directory, cookie, bytes): the next entries as getdents64(2) gives them; none at the end. The cookie is
 * the d_off of the last entry seen, in decimal, since it needs all of its 64 bits; "0" is the beginning. */
static void read_directory(struct job *job)
{
	int directory = (int)job->number[0];
	size_t room = (size_t)job->number[1];
	off_t cookie = strtoll(job->text[0], NULL, 10);

	if (room < 1024 || room > 1048576) {
		errno = EINVAL;
		job_fail(job, "getdents64");
		return;
	}
	job->bytes = malloc(room);
	if (job->bytes == NULL || lseek(directory, cookie, SEEK_SET) < 0) {
		job_fail(job, "lseek");
		return;
	}
	long got = syscall(SYS_getdents64, directory, job->bytes, room);
	if (got < 0)
		job_fail(job, "getdents64");
	else
		job->size = (size_t)got;
}

/* syncDescriptor(descriptor): its data and metadata are on the disk */
static void sync_descriptor(struct job *job)
{
	if (fsync((int)job->number[0]) < 0)
		job_fail(job, "fsync");
}

/* syncFilesystem(descriptor) */
static void sync_filesystem(struct job *job)
{
	if (syncfs((int)job->number[0]) < 0)
		job_fail(job, "syncfs");
}

/* statFilesystem(descriptor): block size; blocks all, free, free to users; inodes all, free */
static void stat_filesystem(struct job *job)
{
	struct statfs told;

	if (fstatfs((int)job->number[0], &told) < 0) {
		job_fail(job, "fstatfs");
		return;
	}
	job->result[0] = told.f_bsize;
	job->result[1] = (int64_t)told.f_blocks;
	job->result[2] = (int64_t)told.f_bfree;
	job->result[3] = (int64_t)told.f_bavail;
	job->result[4] = (int64_t)told.f_files;
	job->result[5] = (int64_t)told.f_ffree;
}

const struct operation file_operations[] = {
	{"openBeneath", "ntnn", RESULT_NUMBER, open_path},
	{"statName", "nt", RESULT_NUMBERS, stat_name},
	{"statDescriptor", "n", RESULT_NUMBERS, stat_descriptor},
	{"makeDirectory", "ntntnnn", RESULT_NONE, make_directory},
	{"removeName", "ntn", RESULT_NONE, remove_name},
	{"removeLeftovers", "nt", RESULT_NONE, remove_leftovers},
	{"renameName", "ntntn", RESULT_NONE, rename_name},
	{"publishFile", "nntnt", RESULT_NONE, publish_file},
	{"readDirectory", "ntn", RESULT_BYTES, read_directory},
	{"syncDescriptor", "n", RESULT_NONE, sync_descriptor},
	{"syncFilesystem", "n", RESULT_NONE, sync_filesystem},
	{"statFilesystem", "n", RESULT_NUMBERS, stat_filesystem},
	{NULL, NULL, RESULT_NONE, NULL},
};
