#include "restore.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../overlays.h"
#include "../sandbox.h"
#include "entries.h"
#include "layers.h"
#include "names.h"
#include "trees.h"

/* Each level has an open descriptor for every layer. */
#define DEPTH_MAX 100
#define PROBLEMS_MAX 5

/* What would be in the way is removed first in all directories, which makes room for what comes back. */
enum pass { PASS_REMOVE, PASS_RESTORE };

struct restoration {
	enum pass pass;
	dev_t device; /* of the overlay that is being restored: other mounts are left alone */
	char path[PATH_MAX];
	unsigned long restored, removed, failed;
	char problems[PROBLEMS_MAX][PATH_MAX];
};

static void note_failure(struct restoration *r, const char *name)
{
	if (r->failed < PROBLEMS_MAX)
		snprintf(r->problems[r->failed], PATH_MAX, "%.3000s/%.255s", r->path, name);
	r->failed++;
}

static bool is_unchanged(const struct stat *now, const struct stat *then)
{
	/* The earlier state is a copy of the filesystem, and no program can set the time of a change. */
	return now->st_ino == then->st_ino && now->st_mode == then->st_mode && now->st_size == then->st_size &&
	       now->st_ctim.tv_sec == then->st_ctim.tv_sec && now->st_ctim.tv_nsec == then->st_ctim.tv_nsec;
}

static bool looks_equal(const struct stat *one, const struct stat *other)
{
	return one->st_mode == other->st_mode && one->st_uid == other->st_uid && one->st_gid == other->st_gid &&
	       one->st_size == other->st_size && one->st_mtim.tv_sec == other->st_mtim.tv_sec &&
	       one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static int remove_any(struct restoration *r, int directory, const char *name, int depth)
{
	struct names names = {0};
	struct stat status;
	int result = 0;

	if (unlinkat(directory, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	int inner = layers_open(directory, name);
	if (inner < 0 || depth > DEPTH_MAX || fstat(inner, &status) < 0 || status.st_dev != r->device) {
		if (inner >= 0)
			close(inner);
		return -1;
	}
	if (names_add(&names, inner) < 0)
		result = -1;
	for (size_t i = 0; i < names.count; i++)
		if (remove_any(r, inner, names.list[i], depth + 1) < 0)
			result = -1;
	names_forget(&names);
	close(inner);
	return unlinkat(directory, name, AT_REMOVEDIR) < 0 ? -1 : result;
}

static int copy_file(int from, const char *name, int to, const char *temporary)
{
	int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int target = source < 0 ? -1 : openat(to, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int result = target < 0 ? -1 : trees_copy_content(source, target);

	if (source >= 0)
		close(source);
	if (target >= 0 && close(target) < 0)
		result = -1;
	return result;
}

static int copy_link(int from, const char *name, int to, const char *temporary)
{
	char link[PATH_MAX + 1];
	ssize_t got = readlinkat(from, name, link, PATH_MAX);

	if (got < 0)
		return -1;
	link[got] = '\0';
	return symlinkat(link, to, temporary);
}

static int set_attributes(int directory, const char *name, const struct stat *status)
{
	const struct timespec times[] = {status->st_atim, status->st_mtim};

	/* The owner first, since a change of it clears the bits that set ids. */
	if (fchownat(directory, name, status->st_uid, status->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (!S_ISLNK(status->st_mode) && fchmodat(directory, name, status->st_mode & 07777, 0) < 0)
		return -1;
	return utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
}

static int copy_any(int from, const char *name, const struct stat *status, int to, const char *temporary)
{
	switch (status->st_mode & S_IFMT) {
	case S_IFREG: return copy_file(from, name, to, temporary);
	case S_IFLNK: return copy_link(from, name, to, temporary);
	case S_IFIFO: return mkfifoat(to, temporary, 0600);
	case S_IFSOCK: return mknodat(to, temporary, S_IFSOCK | 0600, 0);
	}
	errno = EOPNOTSUPP;
	return -1;
}

/* Whole, then in the place of the present one; where there is no room for both, the present one goes first. */
static int put_back(int to, const char *name, const struct shown *shown)
{
	char temporary[64];

	snprintf(temporary, sizeof(temporary), ".glovebox-rewind.%d", (int)getpid());
	for (int attempt = 0; attempt < 2; attempt++) {
		int result = copy_any(shown->directory, name, &shown->status, to, temporary);
		if (result == 0 && (set_attributes(to, temporary, &shown->status) < 0 || renameat(to, temporary, to, name) < 0))
			result = -1;
		if (result == 0)
			return 0;
		int error = errno;
		unlinkat(to, temporary, 0);
		errno = error;
		if (error != ENOSPC || unlinkat(to, name, 0) < 0)
			return -1;
	}
	return -1;
}

static void walk(struct restoration *r, const struct layers *layers, int merged, bool is_full, int depth);

static void restore_directory(struct restoration *r, const struct layers *layers, int merged, const char *name,
			      const struct shown *shown, bool is_full, int depth)
{
	struct layers inner;
	struct stat status;
	size_t length = strlen(r->path);

	int directory = layers_open(merged, name);
	if (directory < 0 && r->pass == PASS_RESTORE && mkdirat(merged, name, 0700) == 0) {
		is_full = true;
		r->restored++;
		directory = layers_open(merged, name);
	}
	if (directory < 0 || fstat(directory, &status) < 0 || length + strlen(name) + 2 > sizeof(r->path) || depth == DEPTH_MAX) {
		if (r->pass == PASS_RESTORE)
			note_failure(r, name);
		if (directory >= 0)
			close(directory);
		return;
	}
	if (status.st_dev != r->device) {
		close(directory);
		return;
	}
	snprintf(r->path + length, sizeof(r->path) - length, "%s%s", length > 0 ? "/" : "", name);
	layers_enter(layers, name, r->path, false, &inner);
	walk(r, &inner, directory, is_full || layers_is_opaque(inner.now) != layers_is_opaque(inner.then), depth + 1);
	layers_close(&inner);
	r->path[length] = '\0';
	close(directory);
	if (r->pass == PASS_RESTORE && fstatat(merged, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !looks_equal(&status, &shown->status) && set_attributes(merged, name, &shown->status) < 0)
		note_failure(r, name);
}

static void restore_entry(struct restoration *r, const struct layers *layers, int merged, const char *name, bool is_full,
			  int depth)
{
	struct stat now, then, present;
	bool is_now = layers->now >= 0 && fstatat(layers->now, name, &now, AT_SYMLINK_NOFOLLOW) == 0;
	bool is_then = layers->then >= 0 && fstatat(layers->then, name, &then, AT_SYMLINK_NOFOLLOW) == 0;

	if (is_now && is_then && !S_ISDIR(now.st_mode) && is_unchanged(&now, &then))
		return;
	struct shown shown = layers_find(layers, name);
	bool is_present = fstatat(merged, name, &present, AT_SYMLINK_NOFOLLOW) == 0;
	bool is_directory = is_present && S_ISDIR(present.st_mode);
	if (is_directory && present.st_dev != r->device)
		return;
	bool is_kept = shown.exists && is_directory == S_ISDIR(shown.status.st_mode);
	if (r->pass == PASS_REMOVE && is_present && !is_kept) {
		if (remove_any(r, merged, name, depth) < 0)
			note_failure(r, name);
		else
			r->removed++;
		return;
	}
	if (!shown.exists)
		return;
	if (S_ISDIR(shown.status.st_mode)) {
		restore_directory(r, layers, merged, name, &shown, is_full, depth);
		return;
	}
	if (r->pass == PASS_REMOVE || is_directory)
		return;
	if (is_present && !is_now && !is_then && looks_equal(&present, &shown.status))
		return;
	if (put_back(merged, name, &shown) < 0)
		note_failure(r, name);
	else
		r->restored++;
}

/* Entries that neither state has in its upper directory are the same, unless one of both hides the layers below. */
static void walk(struct restoration *r, const struct layers *layers, int merged, bool is_full, int depth)
{
	struct names names = {0};
	bool is_complete = names_add(&names, layers->now) == 0 && names_add(&names, layers->then) == 0;

	if (is_full) {
		is_complete = names_add(&names, merged) == 0 && is_complete;
		for (size_t i = 0; i < LOWER_LAYERS; i++)
			is_complete = names_add(&names, layers->lower[i]) == 0 && is_complete;
	}
	if (!is_complete)
		note_failure(r, "");
	names_sort(&names);
	for (size_t i = 0; i < names.count; i++)
		if (i == 0 || strcmp(names.list[i], names.list[i - 1]) != 0)
			restore_entry(r, layers, merged, names.list[i], is_full, depth);
	names_forget(&names);
}

static int open_upper(int disk, const char *part)
{
	int upper = layers_open(disk, "upper");
	int directory = layers_open(upper, part);

	if (upper >= 0)
		close(upper);
	return directory;
}

static void restore_part(struct restoration *r, int state, int number)
{
	const struct overlay_part *part = &overlay_parts[number];
	struct layers layers = LAYERS_NONE;
	struct stat status;
	int merged = open(part->path[0] == '\0' ? "/" : part->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	layers.part = part->name;
	layers.path = r->path;
	layers.now = open_upper(SANDBOX_DISK, part->name);
	/* A part of the image that is a link or missing was not mounted. */
	if (layers.now >= 0 && merged >= 0 && fstat(merged, &status) == 0) {
		layers.then = open_upper(state, part->name);
		layers.lower[0] = part->path[0] == '\0' ? layers_open(SANDBOX_TOP, ".") : -1;
		layers.lower[1] = layers_open(SANDBOX_PARTS + number, ".");
		r->device = status.st_dev;
		r->path[0] = '\0';
		walk(r, &layers, merged, false, 0);
	}
	layers_close(&layers);
	if (merged >= 0)
		close(merged);
}

int restore_run(const char *entry)
{
	static struct restoration r;
	char text[PATH_MAX + 80];

	/* Its descriptors lead to the layers: no other process of the sandbox may reach them. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -1;
	int state = layers_open(SANDBOX_STATES, entry);
	if (state < 0)
		return -1;
	for (r.pass = PASS_REMOVE; r.pass <= PASS_RESTORE; r.pass++)
		for (int i = 0; i < OVERLAY_PARTS; i++)
			restore_part(&r, state, i);
	close(state);
	int length = snprintf(text, sizeof(text), "%lu %lu %lu\n", r.restored, r.removed, r.failed);
	if (entries_put(text, (size_t)length) < 0)
		return -1;
	for (unsigned long i = 0; i < r.failed && i < PROBLEMS_MAX; i++) {
		length = snprintf(text, sizeof(text), "%s\n", r.problems[i]);
		if (entries_put(text, (size_t)length) < 0)
			return -1;
	}
	return 0;
}
