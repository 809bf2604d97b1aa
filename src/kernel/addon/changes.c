/* Finds changed files in a tree with one bounded walk on one thread.
 *
 * BOUNDARY: code in a sandbox created the tree. Only directories beneath the root are opened, and links are not followed.
 * A FIFO, a device or a file of any size costs one stat. */
#define _GNU_SOURCE
#include "beneath.h"
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Size of the queue of directories to read. */
#define QUEUE_BYTES (1024 * 1024)
#define ENTRIES_BYTES 32768
#define DEPTH_MAX 64
/* Maximum size of the result: records and paths. */
#define FOUND_BYTES (256 * 1024)
/* Number of entries between two reads of the clock. */
#define LOOK_EVERY 64
/* Size of the header of each record: length of the path u16, size u64, change time in ns u64, inode u64. */
#define RECORD_BYTES 26

struct walk {
	int root;
	int64_t since_us;
	struct timespec until;
	uint32_t looked;
	bool is_cut;  /* the result is incomplete */
	bool is_over; /* the walk stops */

	char *queue; /* paths, each with its NUL; the root is "" */
	size_t queue_start;
	size_t queue_end;

	unsigned char *entries;
	unsigned char *found;
	size_t found_bytes;
};

struct entry {
	uint64_t inode;
	int64_t cookie;
	unsigned short length;
	unsigned char type;
	char name[];
};

static bool is_late(struct walk *walk)
{
	struct timespec now;

	if (walk->is_over || walk->looked++ % LOOK_EVERY != 0)
		return walk->is_over;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec < walk->until.tv_sec ||
	    (now.tv_sec == walk->until.tv_sec && now.tv_nsec < walk->until.tv_nsec))
		return false;
	walk->is_cut = true;
	walk->is_over = true;
	return true;
}

/* Directories that are skipped: caches, environments, and directories of the filesystem. */
static bool is_left_out(const char *name)
{
	static const char *const names[] = {"__pycache__", "node_modules", "lost+found"};

	if (name[0] == '.')
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* Writes DIRECTORY/NAME. Returns its length, or 0 if it is too long for a path. */
static size_t join(char path[PATH_MAX], const char *directory, const char *name)
{
	size_t head = strlen(directory), tail = strlen(name);
	size_t slash = head > 0 ? 1 : 0;

	if (head + slash + tail + 1 > PATH_MAX)
		return 0;
	memcpy(path, directory, head);
	if (slash > 0)
		path[head] = '/';
	memcpy(path + head + slash, name, tail + 1);
	return head + slash + tail;
}

static size_t depth_of(const char *path)
{
	size_t depth = 1;

	for (; *path != '\0'; path++)
		depth += *path == '/';
	return depth;
}

static void await(struct walk *walk, const char *path, size_t length)
{
	if (length == 0 || depth_of(path) > DEPTH_MAX || walk->queue_end + length + 1 > QUEUE_BYTES) {
		walk->is_cut = true;
		return;
	}
	memcpy(walk->queue + walk->queue_end, path, length + 1);
	walk->queue_end += length + 1;
}

static void put(unsigned char *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(value >> (8 * i));
}

static void write_record(struct walk *walk, const char *path, size_t length, const struct stat *stat)
{
	unsigned char *at = walk->found + walk->found_bytes;

	if (length == 0 || walk->found_bytes + RECORD_BYTES + length > FOUND_BYTES) {
		walk->is_cut = true;
		walk->is_over = true;
		return;
	}
	put(at, length, 2);
	put(at + 2, (uint64_t)stat->st_size, 8);
	put(at + 10, (uint64_t)stat->st_ctim.tv_sec * 1000000000u + (uint64_t)stat->st_ctim.tv_nsec, 8);
	put(at + 18, stat->st_ino, 8);
	memcpy(at + RECORD_BYTES, path, length);
	walk->found_bytes += RECORD_BYTES + length;
}

static void look_at(struct walk *walk, int directory, const char *under, const struct entry *entry)
{
	char path[PATH_MAX];
	struct stat stat;
	bool may_be_directory = entry->type == DT_DIR || entry->type == DT_UNKNOWN;

	if (entry->type != DT_REG && !may_be_directory)
		return;
	if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
		return;
	if (entry->type == DT_DIR) {
		if (!is_left_out(entry->name))
			await(walk, path, join(path, under, entry->name));
		return;
	}
	if (fstatat(directory, entry->name, &stat, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return; /* removed meanwhile */
	if (S_ISDIR(stat.st_mode) && !is_left_out(entry->name))
		await(walk, path, join(path, under, entry->name));
	if (S_ISREG(stat.st_mode) && stat.st_ctim.tv_sec * 1000000 + stat.st_ctim.tv_nsec / 1000 >= walk->since_us)
		write_record(walk, path, join(path, under, entry->name), &stat);
}

/* Returns -1 with errno if the directory cannot be read. */
static int read_entries(struct walk *walk, int directory, const char *under)
{
	for (;;) {
		long got = syscall(SYS_getdents64, directory, walk->entries, ENTRIES_BYTES);
		if (got <= 0)
			return (int)got;
		for (long at = 0; at < got;) {
			const struct entry *entry = (const struct entry *)(void *)(walk->entries + at);
			if (is_late(walk))
				return 0;
			look_at(walk, directory, under, entry);
			at += entry->length;
		}
	}
}

static int read_next(struct walk *walk)
{
	const char *path = walk->queue + walk->queue_start;
	int directory = open_beneath(walk->root, path[0] == '\0' ? "." : path, O_RDONLY | O_DIRECTORY, 0);

	walk->queue_start += strlen(path) + 1;
	if (directory < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EXDEV ? 0 : -1;
	int read = read_entries(walk, directory, path);
	int error = errno;
	close(directory);
	errno = error;
	return read;
}

/* changedFiles(root, sinceUs, forMs): returns the regular files whose status changed at or after a wall-clock time, in no
 * order. The first byte states whether the result is incomplete; a record for each file follows, as write_record() writes
 * it. Walks for at most forMs. */
static void changed_files(struct job *job)
{
	struct walk walk = {.root = (int)job->number[0], .since_us = job->number[1], .queue_end = 1, .found_bytes = 1};

	clock_gettime(CLOCK_MONOTONIC, &walk.until);
	walk.until.tv_nsec += (job->number[2] % 1000) * 1000000;
	walk.until.tv_sec += job->number[2] / 1000 + walk.until.tv_nsec / 1000000000;
	walk.until.tv_nsec %= 1000000000;
	walk.queue = malloc(QUEUE_BYTES);
	walk.entries = malloc(ENTRIES_BYTES);
	walk.found = malloc(FOUND_BYTES);
	if (walk.queue == NULL || walk.entries == NULL || walk.found == NULL) {
		job_fail(job, "malloc");
	} else {
		walk.queue[0] = '\0';
		while (walk.queue_start < walk.queue_end && job->error == 0 && !is_late(&walk))
			if (read_next(&walk) < 0)
				job_fail(job, "getdents64");
	}
	free(walk.queue);
	free(walk.entries);
	if (job->error != 0) {
		free(walk.found);
		return;
	}
	walk.found[0] = walk.is_cut;
	job->bytes = walk.found;
	job->size = walk.found_bytes;
}

const struct operation change_operations[] = {
	{"changedFiles", "nnn", RESULT_BYTES, changed_files},
	{NULL, NULL, RESULT_NONE, NULL},
};
