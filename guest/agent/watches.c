#include "watches.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../frames.h"
#include "entries.h"

/* Directories of one watch; with more it ends as ENOSPC. Their kernel memory is not limited otherwise. */
#define WATCHES_MAX 4096
#define DEPTH_MAX 64
#define EVENTS (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVED_TO)

/* Paths by watch descriptor; the kernel numbers these from 1 and does not use one twice. */
struct watched {
	int descriptor;
	char *path;
};

static struct watched *watched;
static size_t watched_count;
static int inotify;

static const char *path_of(int descriptor)
{
	for (size_t i = watched_count; i-- > 0;)
		if (watched[i].descriptor == descriptor)
			return watched[i].path;
	return NULL;
}

static void forget(int descriptor)
{
	for (size_t i = 0; i < watched_count; i++) {
		if (watched[i].descriptor != descriptor)
			continue;
		free(watched[i].path);
		watched[i] = watched[--watched_count];
		return;
	}
}

static int add_one(const char *path)
{
	int descriptor = inotify_add_watch(inotify, path, EVENTS | IN_DONT_FOLLOW);

	if (descriptor < 0)
		return -1;
	if (path_of(descriptor) != NULL)
		return 0;
	if (watched_count == WATCHES_MAX) {
		errno = ENOSPC;
		return -1;
	}
	watched[watched_count] = (struct watched){.descriptor = descriptor, .path = strdup(path)};
	return watched[watched_count++].path == NULL ? -1 : 0;
}

/* A directory that was removed meanwhile, or cannot be read, is left out. */
static int add_below(const char *path, int depth)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	char below[PATH_MAX];
	int result = 0;

	while (directory != NULL && result == 0 && (entry = readdir(directory)) != NULL) {
		if (entry->d_type != DT_DIR || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if ((size_t)snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >= sizeof(below))
			continue;
		result = add_one(below);
		if (result < 0 && errno != ENOSPC)
			result = 0;
		else if (result == 0 && depth < DEPTH_MAX)
			result = add_below(below, depth + 1);
	}
	if (directory != NULL)
		closedir(directory);
	return result;
}

static int put(uint8_t kind, const char *path)
{
	uint8_t record[5 + PATH_MAX + NAME_MAX + 2];
	size_t length = strnlen(path, PATH_MAX + NAME_MAX + 1);

	write_u32(record, (uint32_t)length + 1);
	record[4] = kind;
	memcpy(record + 5, path, length);
	return entries_put(record, 5 + length);
}

static uint8_t kind_of(uint32_t mask)
{
	if ((mask & IN_CREATE) != 0)
		return 'c';
	if ((mask & (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)) != 0)
		return 'm';
	if ((mask & (IN_DELETE | IN_DELETE_SELF)) != 0)
		return 'd';
	if ((mask & IN_MOVED_FROM) != 0)
		return 'f';
	return (mask & IN_MOVED_TO) != 0 ? 't' : 0;
}

static int take(const struct inotify_event *event, bool is_recursive)
{
	char path[PATH_MAX + NAME_MAX + 2];
	const char *directory = path_of(event->wd);

	if ((event->mask & IN_IGNORED) != 0) {
		forget(event->wd);
		return 0;
	}
	if (directory == NULL || kind_of(event->mask) == 0)
		return 0;
	snprintf(path, sizeof(path), event->len > 0 ? "%s/%s" : "%s", directory, event->name);
	bool is_new = (event->mask & (IN_CREATE | IN_MOVED_TO)) != 0 && (event->mask & IN_ISDIR) != 0;
	if (is_recursive && is_new && (add_one(path) < 0 || add_below(path, 0) < 0) && errno == ENOSPC)
		return -1;
	return put(kind_of(event->mask), path);
}

int watches_run(const char *path, bool is_recursive)
{
	static char events[65536] __attribute__((aligned(8)));

	watched = calloc(WATCHES_MAX, sizeof(*watched));
	inotify = inotify_init1(IN_CLOEXEC);
	if (watched == NULL || inotify < 0 || add_one(path) < 0 || (is_recursive && add_below(path, 0) < 0) || put('r', "") < 0)
		return -1;
	for (;;) {
		ssize_t got = read(inotify, events, sizeof(events));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		for (char *at = events; at < events + got;) {
			const struct inotify_event *event = (const struct inotify_event *)(void *)at;
			at += sizeof(*event) + event->len;
			/* The queue of the kernel overflowed: the reader looks for itself, and watches anew. */
			if ((event->mask & IN_Q_OVERFLOW) != 0) {
				errno = EOVERFLOW;
				return -1;
			}
			if (take(event, is_recursive) < 0)
				return -1;
		}
	}
}
