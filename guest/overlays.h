/* Overlays that separate the files of a slot from those of other slots. */
#ifndef GLOVEBOX_OVERLAYS_H
#define GLOVEBOX_OVERLAYS_H

#include <stdbool.h>

/* The mounts that the image consists of: an overlay shows nothing that is mounted below its layers. */
struct overlay_part {
	const char *name; /* in SHARED_IMAGE, and of its directories in layers and disks */
	const char *path; /* where it is mounted in the image */
};

#define OVERLAY_PARTS 3

extern const struct overlay_part overlay_parts[OVERLAY_PARTS];

/* Whether an entry of the image is hidden, because it belongs to the machine. `path`: of its directory in the part, without a
 * leading slash. */
bool overlays_hide(const char *part, const char *path, const char *name);

/* Shows the image at IMAGE through overlays, so that inotify(7) and flock(2) act on the inodes of this slot alone. Nothing
 * is copied, and pages in memory stay shared. Hides what a machine keeps below /usr for itself. Once in the life of a slot. Returns 0, or -1 with fail_text. */
int overlays_mount(void);

/* In the init of a sandbox: shows its image at IMAGE with everything that differs from it on a disk of its own, writable.
 * `disk` and `image` are entries of the dock. Returns 0, or -1 with fail_text. */
int overlays_mount_writable(const char *disk, const char *image);

#endif
