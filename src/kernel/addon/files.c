/* Accesses files of a thread or volume relative to a descriptor.
 *
 * BOUNDARY: code in a sandbox controls everything below the descriptor and can change it at any time. The kernel resolves
 * a path beneath the descriptor, through directories only. A name is one component. */
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

	/* EAGAIN: a concurrent rename interfered with the lookup; openat2(2) requires a retry. */
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

/* openBeneath(directory, path, flags, mode): returns a descriptor */
static void open_path(struct job *job)
{
	job->result[0] = open_beneath((int)job->number[0], job->text[0], (uint64_t)job->number[1], (uint64_t)job->number[2]);
	if (job->result[0] < 0)
		job_fail(job, "openat2");
}

static void fill_status(struct job *job, const struct stat *stat)
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

/* statName(directory, name): returns the numbers of fill_status(). Does not follow links. */
static void stat_name(struct job *job)
{
	struct stat stat;

	if (!is_component(job, job->text[0]))
		return;
	if (fstatat((int)job->number[0], job->text[0], &stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		job_fail(job, "fstatat");
	else
		fill_status(job, &stat);
}

/* statDescriptor(descriptor): returns the numbers of fill_status() */
static void stat_descriptor(struct job *job)
{
	struct stat stat;

	if (fstat((int)job->number[0], &stat) < 0)
		job_fail(job, "fstat");
	else
		fill_status(job, &stat);
}

/* makeDirectory(root, unfinished, directory, name, mode, uid, gid): creates a directory with its owner atomically. It has
 * the name `unfinished` in the root until then. Fails in "unfinished" with EEXIST if that name is in use. */
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

/* removeLeftovers(directory, names): removes files, links and empty directories with these names, separated by "/" */
static void remove_leftovers(struct job *job)
{
	int directory = (int)job->number[0];
	char *rest = job->text[0], *name;

	while ((name = strsep(&rest, "/")) != NULL) {
		if (!is_component(job, name))
			return;
		if (unlinkat(directory, name, 0) == 0 || errno == ENOENT)
			continue;
		/* A directory with content was created by code in the sandbox, so it is kept. */
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

/* publishFile(file, root, unfinished, directory, name): gives an unnamed file (O_TMPFILE) a name. To replace an existing
 * entry, the file is first linked as `unfinished` in the root and then renamed. Fails in "unfinished" with EEXIST if that
 * name is in use. Links through /proc, which needs no capability, unlike AT_EMPTY_PATH. */
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

/* readDirectory(directory, cookie, bytes): returns the next entries in the format of getdents64(2); none at the end. The
 * cookie is the d_off of the last entry, in decimal because it has 64 significant bits; "0" is the beginning. */
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

/* syncDescriptor(descriptor): fsync(2) */
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

/* statFilesystem(descriptor): returns block size; blocks: total, free, available; inodes: total, free */
static void stat_filesystem(struct job *job)
{
	struct statfs values;

	if (fstatfs((int)job->number[0], &values) < 0) {
		job_fail(job, "fstatfs");
		return;
	}
	job->result[0] = values.f_bsize;
	job->result[1] = (int64_t)values.f_blocks;
	job->result[2] = (int64_t)values.f_bfree;
	job->result[3] = (int64_t)values.f_bavail;
	job->result[4] = (int64_t)values.f_files;
	job->result[5] = (int64_t)values.f_ffree;
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
