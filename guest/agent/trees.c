#include "trees.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Deeper ones are refused: each level has an open descriptor. */
#define DEPTH_MAX 128

int trees_copy_content(int from, int to)
{
	char buffer[65536];

	for (;;) {
		ssize_t moved = copy_file_range(from, NULL, to, NULL, 1u << 30, 0);
		if (moved == 0)
			return 0;
		if (moved > 0)
			continue;
		if (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP)
			return -1;
		break;
	}
	for (;;) {
		ssize_t got = read(from, buffer, sizeof(buffer));
		if (got <= 0)
			return (int)got;
		for (ssize_t done = 0; done < got;) {
			ssize_t put = write(to, buffer + done, (size_t)(got - done));
			if (put < 0)
				return -1;
			done += put;
		}
	}
}

static int copy_file(int from_dir, const char *from, int to_dir, const char *to, const struct stat *status)
{
	int source = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int target = source < 0 ? -1 : openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	const struct timespec times[] = {status->st_atim, status->st_mtim};

	if (target < 0)
		return -1;
	int result = trees_copy_content(source, target);
	if (result == 0)
		result = fchmod(target, status->st_mode & 0777);
	if (result == 0)
		result = futimens(target, times);
	close(source);
	close(target);
	return result;
}

static int copy_link(int from_dir, const char *from, int to_dir, const char *to)
{
	char link[PATH_MAX + 1];
	ssize_t got = readlinkat(from_dir, from, link, PATH_MAX);

	if (got < 0)
		return -1;
	link[got] = '\0';
	return symlinkat(link, to_dir, to);
}

static int copy_any(int from_dir, const char *from, int to_dir, const char *to, int depth);

static int copy_directory(int from_dir, const char *from, int to_dir, const char *to, const struct stat *status, int depth)
{
	struct dirent *entry;
	int result = 0;

	if (depth == DEPTH_MAX) {
		errno = ELOOP;
		return -1;
	}
	int source = openat(from_dir, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *directory = source < 0 ? NULL : fdopendir(source);
	if (directory == NULL || mkdirat(to_dir, to, 0700) < 0)
		return -1;
	int target = openat(to_dir, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (target < 0)
		return -1;
	for (errno = 0; result == 0 && (entry = readdir(directory)) != NULL; errno = 0)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			result = copy_any(source, entry->d_name, target, entry->d_name, depth + 1);
	if (result == 0 && errno != 0)
		result = -1;
	if (result == 0)
		result = fchmod(target, status->st_mode & 0777);
	int error = errno;
	closedir(directory);
	close(target);
	errno = error;
	return result;
}

/* FIFOs are made anew; sockets and devices cannot be copied, and are left out below the top. */
static int copy_any(int from_dir, const char *from, int to_dir, const char *to, int depth)
{
	struct stat status;

	if (fstatat(from_dir, from, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	switch (status.st_mode & S_IFMT) {
	case S_IFREG: return copy_file(from_dir, from, to_dir, to, &status);
	case S_IFDIR: return copy_directory(from_dir, from, to_dir, to, &status, depth);
	case S_IFLNK: return copy_link(from_dir, from, to_dir, to);
	case S_IFIFO: return mkfifoat(to_dir, to, status.st_mode & 0777);
	default:
		errno = ENXIO;
		return depth == 0 ? -1 : 0;
	}
}

/* Whether `to` lies in `from`, which would never end. */
static bool is_inside(const char *from, const char *to)
{
	char outer[PATH_MAX];
	char inner[PATH_MAX];
	char parent[PATH_MAX];

	snprintf(parent, sizeof(parent), "%s", to);
	char *slash = strrchr(parent, '/');
	if (slash == NULL)
		strcpy(parent, ".");
	else if (slash == parent)
		parent[1] = '\0';
	else
		*slash = '\0';
	if (realpath(from, outer) == NULL || realpath(parent, inner) == NULL)
		return false;
	size_t length = strlen(outer);
	return strncmp(outer, inner, length) == 0 && (inner[length] == '/' || inner[length] == '\0');
}

int trees_copy(const char *from, const char *to, bool may_replace)
{
	char beside[PATH_MAX];
	struct stat status;

	if (lstat(from, &status) < 0)
		return -1;
	if (S_ISDIR(status.st_mode) && is_inside(from, to)) {
		errno = EINVAL;
		return -1;
	}
	if (!may_replace)
		return copy_any(AT_FDCWD, from, AT_FDCWD, to, 0);
	/* Whole, then in the place of the old one. */
	if ((size_t)snprintf(beside, sizeof(beside), "%s.%d.part", to, (int)getpid()) >= sizeof(beside)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (copy_any(AT_FDCWD, from, AT_FDCWD, beside, 0) == 0 && rename(beside, to) == 0)
		return 0;
	int error = errno;
	trees_remove(beside, true);
	errno = error;
	return -1;
}

/* Parts of a sandbox are mounts of their own, between which nothing can be renamed. */
int trees_move(const char *from, const char *to, bool may_replace)
{
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, may_replace ? 0 : RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EXDEV || trees_copy(from, to, may_replace) < 0)
		return -1;
	return trees_remove(from, true);
}

static int remove_tree(const char *path)
{
	char *const paths[] = {(char *)(unsigned long)path, NULL};
	FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_XDEV, NULL);
	int error = tree == NULL ? errno : 0;
	FTSENT *entry;

	while (tree != NULL && (entry = fts_read(tree)) != NULL) {
		int failed = 0;
		if (entry->fts_info == FTS_D)
			continue;
		if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
			failed = entry->fts_errno;
		else if (unlinkat(AT_FDCWD, entry->fts_accpath, entry->fts_info == FTS_DP ? AT_REMOVEDIR : 0) < 0)
			failed = errno;
		/* What is removed by others meanwhile is removed. */
		if (failed != 0 && failed != ENOENT && error == 0)
			error = failed;
	}
	if (tree != NULL)
		fts_close(tree);
	errno = error;
	return error == 0 ? 0 : -1;
}

int trees_remove(const char *path, bool is_recursive)
{
	struct stat status;

	if (lstat(path, &status) < 0)
		return -1;
	if (!S_ISDIR(status.st_mode))
		return unlink(path);
	return is_recursive ? remove_tree(path) : rmdir(path);
}
