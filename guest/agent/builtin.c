#include "builtin.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entries.h"
#include "restore.h"
#include "trees.h"
#include "watches.h"

#define ENTRIES_MAX 1000u

static bool is(const char *argument, const char *word)
{
	return strcmp(argument, word) == 0;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

static int stat_path(const char *path)
{
	struct stat status;

	return lstat(path, &status) < 0 ? -1 : entries_put_entry(AT_FDCWD, path, name_of(path), &status);
}

static int list(const char *path, const char *after, const char *most)
{
	unsigned long count = strtoul(most, NULL, 10);

	return entries_list(path, after, count == 0 || count > ENTRIES_MAX ? ENTRIES_MAX : count);
}

/* Never waits for the writer of a FIFO. */
static int read_file(const char *path, const char *offset, const char *length)
{
	static char buffer[65536];
	struct stat status;
	unsigned long long left = length[0] == '\0' ? ULLONG_MAX : strtoull(length, NULL, 10);
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &status) < 0)
		return -1;
	if (!S_ISREG(status.st_mode)) {
		errno = S_ISDIR(status.st_mode) ? EISDIR : ENXIO;
		return -1;
	}
	if (entries_put_entry(AT_FDCWD, path, name_of(path), &status) < 0)
		return -1;
	if (lseek(fd, (off_t)strtoull(offset, NULL, 10), SEEK_SET) < 0)
		return -1;
	while (left > 0) {
		ssize_t got = read(fd, buffer, left < sizeof(buffer) ? left : sizeof(buffer));
		if (got <= 0)
			return (int)got;
		if (entries_put(buffer, (size_t)got) < 0)
			return -1;
		left -= (unsigned long long)got;
	}
	return 0;
}

static int make_parents(const char *path)
{
	char part[PATH_MAX];
	size_t length = strlen(path);

	if (length >= sizeof(part)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (size_t end = 1; end < length; end++) {
		if (path[end] != '/')
			continue;
		memcpy(part, path, end);
		part[end] = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -1;
	}
	return 0;
}

/* Copies standard input to a file. */
static int receive(int fd)
{
	static char buffer[65536];

	for (;;) {
		ssize_t got = read(0, buffer, sizeof(buffer));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return (int)got;
		for (ssize_t done = 0; done < got;) {
			ssize_t put = write(fd, buffer + done, (size_t)(got - done));
			if (put < 0)
				return -1;
			done += put;
		}
	}
}

/* For a file that cannot be replaced: one of another owner, with other names, or in a directory that cannot be written. */
static int write_in_place(const char *path, int flags, mode_t mode)
{
	struct stat status;
	int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | flags, mode);

	if (fd < 0 || fstat(fd, &status) < 0)
		return -1;
	if (!S_ISREG(status.st_mode)) {
		errno = ENXIO;
		return -1;
	}
	if (receive(fd) < 0 || fsync(fd) < 0)
		return -1;
	return close(fd);
}

/* Writes a file without a name, which then replaces the other. It has a name of its own for microseconds. */
static int write_and_replace(const char *path, mode_t mode)
{
	char directory[PATH_MAX];
	char beside[PATH_MAX];
	char self[32];

	snprintf(directory, sizeof(directory), "%s", path);
	const char *parent = dirname(directory);
	int fd = open(parent, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	if ((size_t)snprintf(beside, sizeof(beside), "%s/.%d.part", parent, (int)getpid()) >= sizeof(beside)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (receive(fd) < 0 || fchmod(fd, mode) < 0 || fsync(fd) < 0)
		return -1;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, self, AT_FDCWD, beside, AT_SYMLINK_FOLLOW) < 0)
		return -1;
	if (rename(beside, path) == 0)
		return 0;
	int error = errno;
	unlink(beside);
	errno = error;
	return -1;
}

static bool can_be_replaced(const char *path, const struct stat *status)
{
	char directory[PATH_MAX];

	snprintf(directory, sizeof(directory), "%s", path);
	return status->st_uid == geteuid() && status->st_gid == getegid() && status->st_nlink == 1 &&
	       access(dirname(directory), W_OK) == 0;
}

static int write_file(const char *path, const char *mode, bool appends, bool makes_parents)
{
	char resolved[PATH_MAX];
	struct stat status;
	mode_t wanted = mode[0] == '\0' ? 0644 : (mode_t)strtoul(mode, NULL, 8) & 0777;

	if (makes_parents && make_parents(path) < 0)
		return -1;
	/* What a link points to is written, and the link stays. */
	const char *target = realpath(path, resolved) == NULL ? path : resolved;
	bool exists = stat(target, &status) == 0;
	if (exists && !S_ISREG(status.st_mode)) {
		errno = S_ISDIR(status.st_mode) ? EISDIR : ENXIO;
		return -1;
	}
	if (appends)
		return write_in_place(target, O_APPEND | O_CREAT, wanted);
	if (exists && !can_be_replaced(target, &status))
		return write_in_place(target, O_TRUNC, 0);
	if (exists && mode[0] == '\0')
		wanted = status.st_mode & 07777;
	return write_and_replace(target, wanted);
}

static int make_directory(const char *path, const char *mode, bool makes_parents)
{
	struct stat status;
	mode_t wanted = mode[0] == '\0' ? 0755 : (mode_t)strtoul(mode, NULL, 8) & 0777;

	if (makes_parents && make_parents(path) < 0)
		return -1;
	if (mkdir(path, wanted) == 0)
		return mode[0] == '\0' ? 0 : chmod(path, wanted);
	bool is_there = errno == EEXIST && makes_parents && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
	if (!is_there)
		errno = errno == 0 ? EEXIST : errno;
	return is_there ? 0 : -1;
}

static int perform(uint32_t operation, char *const *args)
{
	switch ((enum builtin)operation) {
	case BUILTIN_STAT: return stat_path(args[0]);
	case BUILTIN_LIST: return list(args[0], args[1], args[2]);
	case BUILTIN_READ: return read_file(args[0], args[1], args[2]);
	case BUILTIN_WRITE: return write_file(args[0], args[1], is(args[2], "append"), is(args[3], "parents"));
	case BUILTIN_MAKE: return make_directory(args[0], args[1], is(args[2], "parents"));
	case BUILTIN_MOVE: return trees_move(args[0], args[1], is(args[2], "replace"));
	case BUILTIN_COPY: return trees_copy(args[0], args[1], is(args[2], "replace"));
	case BUILTIN_REMOVE: return trees_remove(args[0], is(args[1], "recursive"));
	case BUILTIN_WATCH: return watches_run(args[0], is(args[1], "recursive"));
	case BUILTIN_RESTORE: return restore_run(args[0]);
	case BUILTIN_NONE: break;
	}
	errno = ENOSYS;
	return -1;
}

/* What each needs, so that none reads beyond its arguments. */
static size_t arguments_of(uint32_t operation)
{
	static const size_t counts[] = {0, 1, 3, 3, 4, 3, 3, 3, 2, 2, 1};

	return operation <= BUILTIN_LAST ? counts[operation] : SIZE_MAX;
}

_Noreturn void builtin_run(uint32_t operation, char *const *args)
{
	size_t count = 0;

	while (args[count] != NULL)
		count++;
	if (count != arguments_of(operation))
		errno = EINVAL;
	else if (perform(operation, args) == 0)
		_exit(0);
	dprintf(2, "%d", errno);
	_exit(1);
}
