/* The image as this slot alone has it. */
#ifndef GLOVEBOX_OVERLAYS_H
#define GLOVEBOX_OVERLAYS_H

/* Covers the directories of the image that hold what is shared with the machine and every other slot with overlays:
 * who watches or locks a file (inotify(7), flock(2)) then has to do with this slot's own, not with everybody's. Nothing
 * is copied; pages in memory stay shared. Once in the life of a slot, when the image is in its place. Returns 0, or -1
 * with fail_text. */
int layers_cover_image(void);

#endif
