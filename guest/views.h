/* Generated files that show a run the processors it was granted, where programs look for their number. */
#ifndef GLOVEBOX_VIEWS_H
#define GLOVEBOX_VIEWS_H

#include <stdint.h>

/* Where the guest writes them, and the same directory read-only: jails only ever see the latter. */
#define VIEWS_STORE "/scratch/store"
#define VIEWS "/scratch/views"

/* An empty file and an empty directory, to cover others with. */
#define VIEWS_EMPTY VIEWS "/empty"
#define VIEWS_NOTHING VIEWS "/nothing"

/* A boot id of this slot, and a load of zero. */
#define VIEWS_BOOT_ID VIEWS "/boot_id"
#define VIEWS_LOADAVG VIEWS "/loadavg"

/* Makes the directories and all of the above. Once in the life of a slot. Returns 0, or -1 with fail_text. */
int views_open(void);

/* Makes an empty file. Returns 0, or -1 with fail_text. */
int views_make_empty(const char *path);

/* Makes VIEWS_STORE/cpus-<cpus>/ with stat, cpuinfo and sys/ (devices/system/cpu/{online,possible,present} and a
 * directory per processor), unless it is there. Returns 0, or -1 with fail_text. */
int views_make(uint32_t cpus);

#endif
