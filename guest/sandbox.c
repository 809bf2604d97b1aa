#include "sandbox.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include "binds.h"
#include "devices.h"
#include "fail.h"
#include "mounts.h"
#include "overlays.h"

/* Entry of the dock in which the runner attaches earlier states of the disk. */
#define STATES DOCK "/states"

static int keep(const char *path, int number)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return fail("open %s", path);
	if (fd == number)
		return 0;
	int kept = dup3(fd, number, O_CLOEXEC);
	close(fd);
	return kept < 0 ? fail("keep %s open", path) : 0;
}

/* Keeps the layers of the overlays open, and a view of STATES below /run, which covers it: what the runner attaches there
 * later appears in it as well. */
static int keep_layers(const struct preparation *p)
{
	char path[DOCK_PATH_BYTES + 16];

	snprintf(path, sizeof(path), DOCK "/%s", p->root_disk);
	if (keep(path, SANDBOX_DISK) < 0)
		return -1;
	/* An image may lack parts. */
	snprintf(path, sizeof(path), DOCK "/%s/top", p->root_image);
	keep(path, SANDBOX_TOP);
	for (int i = 0; i < OVERLAY_PARTS; i++) {
		snprintf(path, sizeof(path), DOCK "/%s/%s", p->root_image, overlay_parts[i].name);
		keep(path, SANDBOX_PARTS + i);
	}
	if (access(STATES, F_OK) < 0)
		return 0;
	if (mount(STATES, IMAGE "/run", NULL, MS_BIND, NULL) < 0)
		return fail("keep the place of earlier states");
	return keep(IMAGE "/run", SANDBOX_STATES);
}

int sandbox_enter(const struct preparation *p)
{
	/* Above what runs of the slot see at IMAGE, in this mount namespace only. */
	if (overlays_mount_writable(p->root_disk, p->root_image) < 0 || devices_bind() < 0 || mounts_make_own(p) < 0)
		return -1;
	if (keep_layers(p) < 0)
		return -1;
	if (mounts_add_tmpfs(IMAGE "/run", SAFE, "mode=0755", p->home_bytes) < 0)
		return -1;
	if (p->volumes != NULL && mounts_add_storage(IMAGE VOLUMES, p->volumes) < 0)
		return -1;
	/* Root of the sandbox may have put a link there in an earlier life of its disk. */
	if (p->dock != NULL && (mounts_check_point(SANDBOX_HOME) < 0 || mounts_add_storage(IMAGE SANDBOX_HOME, p->dock) < 0))
		return -1;
	return mounts_enter_image();
}
