#include "entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../frames.h"

#define FIXED_BYTES 31u

int entries_put(const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	while (length > 0) {
		ssize_t put = write(1, at, length);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		at += put;
		length -= (size_t)put;
	}
	return 0;
}

static uint8_t kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: return 'f';
	case S_IFDIR: return 'd';
	case S_IFLNK: return 'l';
	case S_IFIFO: return 'p';
	case S_IFSOCK: return 's';
	default: return 'v';
	}
}

static void write_u64(uint8_t *bytes, uint64_t value)
{
	write_u32(bytes, (uint32_t)value);
	write_u32(bytes + 4, (uint32_t)(value >> 32));
}

int entries_put_entry(int directory, const char *path, const char *name, const struct stat *status)
{
	static uint8_t record[4 + FIXED_BYTES + NAME_MAX + PATH_MAX];
	size_t name_bytes = strnlen(name, NAME_MAX);
	size_t bytes = FIXED_BYTES + name_bytes;
	int64_t milliseconds = status->st_mtim.tv_sec * INT64_C(1000) + status->st_mtim.tv_nsec / 1000000;

	record[4] = kind_of(status->st_mode);
	write_u32(record + 5, (uint32_t)(status->st_mode & 07777));
	write_u32(record + 9, status->st_uid);
	write_u32(record + 13, status->st_gid);
	write_u64(record + 17, (uint64_t)status->st_size);
	write_u64(record + 25, milliseconds < 0 ? 0 : (uint64_t)milliseconds);
	record[33] = (uint8_t)name_bytes;
	record[34] = (uint8_t)(name_bytes >> 8);
	memcpy(record + 4 + FIXED_BYTES, name, name_bytes);
	if (S_ISLNK(status->st_mode)) {
		ssize_t got = readlinkat(directory, path, (char *)record + 4 + bytes, PATH_MAX);
		bytes += got < 0 ? 0 : (size_t)got;
	}
	write_u32(record, (uint32_t)bytes);
	return entries_put(record, 4 + bytes);
}

/* The smallest names that follow another, as a heap whose first is the largest. */
struct names {
	char **list;
	size_t count;
	size_t most;
};

static int by_bytes(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

static void sift_down(struct names *names)
{
	for (size_t at = 0;;) {
		size_t child = 2 * at + 1;
		if (child >= names->count)
			return;
		if (child + 1 < names->count && strcmp(names->list[child + 1], names->list[child]) > 0)
			child++;
		if (strcmp(names->list[at], names->list[child]) >= 0)
			return;
		char *larger = names->list[child];
		names->list[child] = names->list[at];
		names->list[at] = larger;
		at = child;
	}
}

static void sift_up(struct names *names)
{
	for (size_t at = names->count - 1; at > 0;) {
		size_t parent = (at - 1) / 2;
		if (strcmp(names->list[at], names->list[parent]) <= 0)
			return;
		char *larger = names->list[at];
		names->list[at] = names->list[parent];
		names->list[parent] = larger;
		at = parent;
	}
}

static int keep_name(struct names *names, const char *name)
{
	bool is_full = names->count == names->most;

	if (is_full && strcmp(name, names->list[0]) >= 0)
		return 0;
	char *copy = strdup(name);
	if (copy == NULL)
		return -1;
	if (is_full) {
		free(names->list[0]);
		names->list[0] = copy;
		sift_down(names);
	} else {
		names->list[names->count++] = copy;
		sift_up(names);
	}
	return 0;
}

static int read_names(DIR *directory, const char *after, struct names *names)
{
	struct dirent *entry;

	for (errno = 0; (entry = readdir(directory)) != NULL; errno = 0) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, after) <= 0)
			continue;
		if (keep_name(names, name) < 0)
			return -1;
	}
	return errno == 0 ? 0 : -1;
}

int entries_list(const char *path, const char *after, size_t most)
{
	struct names names = {.list = calloc(most, sizeof(char *)), .most = most};
	DIR *directory = opendir(path);
	int result = 0;

	if (directory == NULL || names.list == NULL || read_names(directory, after, &names) < 0)
		return -1;
	qsort(names.list, names.count, sizeof(char *), by_bytes);
	for (size_t i = 0; i < names.count && result == 0; i++) {
		struct stat status;
		/* One that was removed meanwhile is left out. */
		if (fstatat(dirfd(directory), names.list[i], &status, AT_SYMLINK_NOFOLLOW) == 0)
			result = entries_put_entry(dirfd(directory), names.list[i], names.list[i], &status);
	}
	return result;
}
