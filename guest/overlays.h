/* Overlays that separate the files of a slot from those of other slots. */
#ifndef GLOVEBOX_OVERLAYS_H
#define GLOVEBOX_OVERLAYS_H

/* Mounts overlays over the directories of the image that other slots and the machine also see, so that inotify(7) and
 * flock(2) act on the inodes of this slot alone. Nothing is copied, and pages in memory stay shared. Once in the life of
 * a slot, after the image is mounted. Returns 0, or -1 with fail_text. */
int overlays_mount(void);

#endif
