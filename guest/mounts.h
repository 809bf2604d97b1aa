/* What a jail sees of files. */
#ifndef GLOVEBOX_MOUNTS_H
#define GLOVEBOX_MOUNTS_H

#include <stdint.h>

#include "prepare.h"

/* Each returns 0, or -1 with fail_text. */

/* Once, when the slot starts: everything that is the same in each of its jails. Jails inherit it with the guest's
 * mount namespace, so that it costs them nothing. */
int mounts_prepare_slot(void);

/* In the guest, before a jail: its home is a directory of the image, and the files that show it `cpus` processors
 * are there (made when that number is first asked for). */
int mounts_prepare_run(const struct preparation *preparation);

/* In the jail's init: mounts what is the run's own, makes the image the root and lets go of the slot. `code` is
 * written to CODE_FILE where there is one. */
int mounts_enter(const struct preparation *preparation, const uint8_t *code);

/* Where a jail has the volumes of its run, each in a directory of its own. */
#define VOLUMES "/volumes"

/* Takes what lies at an entry of the dock, with all that is mounted below it, as a mount of its own that is nowhere yet.
 * Returns a descriptor, or -1 with fail_text. */
int mounts_take_storage(const char *dock);

/* In a jail: puts it at a path. Returns 0, or -1 with fail_text. */
int mounts_put_storage(int storage, const char *path);

#endif
