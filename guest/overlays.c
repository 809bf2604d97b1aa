#include "overlays.h"

#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "binds.h"
#include "fail.h"

/* A read-only overlay needs two lower directories; this one is empty. */
#define LOWEST "/scratch/lowest"

/* Skipped where the image has no such directory. */
static const char *const shared[] = {"/usr", "/etc"};

static int cover(const char *name)
{
	char path[64];
	char options[160];
	struct stat status;

	snprintf(path, sizeof(path), IMAGE "%s", name);
	if (lstat(path, &status) < 0 || !S_ISDIR(status.st_mode))
		return 0;
	snprintf(options, sizeof(options), "lowerdir=%s:" LOWEST ",redirect_dir=nofollow,metacopy=off", path);
	if (mount("overlay", path, "overlay", MS_RDONLY | SAFE, options) < 0)
		return fail("cover %s with an overlay, which only this slot sees", path);
	return 0;
}

int overlays_mount(void)
{
	if (mkdir(LOWEST, 0755) < 0)
		return fail("make %s", LOWEST);
	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
		if (cover(shared[i]) < 0)
			return -1;
	return 0;
}
