/* Generated files that show a run the processors and the memory it was granted, where programs look for them. */
#ifndef GLOVEBOX_VIEWS_H
#define GLOVEBOX_VIEWS_H

#include <stdio.h>

#include "prepare.h"

/* Where the guest writes them, and the same directory read-only: jails only ever see the latter. */
#define VIEWS_STORE "/scratch/store"
#define VIEWS "/scratch/views"

/* An empty file and an empty directory, to cover others with. */
#define VIEWS_EMPTY VIEWS "/empty"
#define VIEWS_NOTHING VIEWS "/nothing"

/* A boot id of this slot, a load of zero, no swap, and the controllers that limit a run. */
#define VIEWS_BOOT_ID VIEWS "/boot_id"
#define VIEWS_LOADAVG VIEWS "/loadavg"
#define VIEWS_SWAPS VIEWS "/swaps"
#define VIEWS_CGROUPS VIEWS "/cgroups"

/* Makes the directories and all of the above. Once in the life of a slot. Returns 0, or -1 with fail_text. */
int views_open(void);

/* Makes an empty file. Returns 0, or -1 with fail_text. */
int views_make_empty(const char *path);

/* Makes the files of the limits of a run, unless they are there: stat, cpuinfo, meminfo, and sys/ with
 * devices/system/cpu/{online,possible,present}, a directory per processor, and fs/cgroup. Returns 0, or -1 with fail_text. */
int views_make(const struct preparation *preparation);

#define VIEW_PATH_BYTES 192

/* Writes the path of one of them, below VIEWS_STORE or VIEWS. */
void views_path(char path[VIEW_PATH_BYTES], const char *base, const struct preparation *preparation, const char *name);

/* Creates one of them for writing. Returns NULL with fail_text when it cannot. */
FILE *views_create(const struct preparation *preparation, const char *name);

/* Closes it. Returns 0, or -1 with fail_text. */
int views_finish(FILE *file, const char *name);

int views_make_directory(const struct preparation *preparation, const char *name);

#endif
