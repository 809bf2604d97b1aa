#include "layers.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../overlays.h"

int layers_open(int at, const char *name)
{
	return at < 0 ? -1 : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void layers_close(struct layers *layers)
{
	close_one(&layers->now);
	close_one(&layers->then);
	for (size_t i = 0; i < LOWER_LAYERS; i++)
		close_one(&layers->lower[i]);
}

bool layers_is_whiteout(const struct stat *status)
{
	return S_ISCHR(status->st_mode) && status->st_rdev == 0;
}

bool layers_is_opaque(int directory)
{
	char mark;

	return directory >= 0 && fgetxattr(directory, "user.overlay.opaque", &mark, 1) == 1 && mark == 'y';
}

static bool is_in(int directory, const char *name, struct stat *status)
{
	return directory >= 0 && fstatat(directory, name, status, AT_SYMLINK_NOFOLLOW) == 0;
}

struct shown layers_find(const struct layers *layers, const char *name)
{
	struct shown shown = {.directory = layers->then};

	if (is_in(layers->then, name, &shown.status)) {
		shown.exists = !layers_is_whiteout(&shown.status);
		return shown;
	}
	if (overlays_hide(layers->part, layers->path, name))
		return shown;
	for (size_t i = 0; i < LOWER_LAYERS && !shown.exists; i++) {
		shown.directory = layers->lower[i];
		shown.exists = is_in(layers->lower[i], name, &shown.status);
	}
	return shown;
}

void layers_enter(const struct layers *layers, const char *name, const char *path, bool is_hidden_then,
		  struct layers *inner)
{
	struct stat status;
	bool covers = false;

	*inner = (struct layers)LAYERS_NONE;
	inner->part = layers->part;
	inner->path = path;
	inner->now = layers_open(layers->now, name);
	if (is_hidden_then)
		return;
	inner->then = layers_open(layers->then, name);
	covers = layers_is_opaque(inner->then) || (inner->then < 0 && is_in(layers->then, name, &status)) ||
		 overlays_hide(layers->part, layers->path, name);
	for (size_t i = 0; i < LOWER_LAYERS && !covers; i++) {
		inner->lower[i] = layers_open(layers->lower[i], name);
		covers = inner->lower[i] < 0 && is_in(layers->lower[i], name, &status);
	}
}
