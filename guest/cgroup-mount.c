#include "cgroup-mount.h"

#include <stdbool.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "binds.h"
#include "limit-views.h"
#include "mounts.h"
#include "views.h"

#define HIERARCHY "/scratch/cgroup2"
#define PLACE IMAGE "/sys/fs/cgroup"

static bool is_mounted;

void cgroup_mount_open(void)
{
	is_mounted = mkdir(HIERARCHY, 0700) == 0 &&
		     mount("cgroup2", HIERARCHY, "cgroup2", MS_RDONLY | SEALED, NULL) == 0;
}

/* A path below the mount would lead to groups of the machine. The files of the run are mounted on its root, so every path
 * leads to them, also "..", and nothing in a jail has the rights to unmount them. */
int cgroup_mount_add(const struct preparation *p)
{
	char path[VIEW_PATH_BYTES];

	if (!is_mounted)
		return 0;
	views_path(path, VIEWS, p, CGROUP_VIEWS);
	return binds_add(HIERARCHY, PLACE) < 0 ? -1 : binds_add(path, PLACE);
}
