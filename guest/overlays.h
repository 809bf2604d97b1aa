/* Overlays that separate the files of a slot from those of other slots. */
#ifndef GLOVEBOX_OVERLAYS_H
#define GLOVEBOX_OVERLAYS_H

/* Shows the image at IMAGE through overlays, so that inotify(7) and flock(2) act on the inodes of this slot alone. Nothing
 * is copied, and pages in memory stay shared. Hides what a machine keeps below /usr for itself. Once in the life of a slot. Returns 0, or -1 with fail_text. */
int overlays_mount(void);

#endif
