/* Opens files and directories that code in a sandbox controls. */
#ifndef GLOVEBOX_KERNEL_BENEATH_H
#define GLOVEBOX_KERNEL_BENEATH_H

#include <stdint.h>

/* Calls openat2(2) relative to a directory. Does not follow links, leave the filesystem or wait. Returns a descriptor, or
 * -1 with errno. */
int open_beneath(int directory, const char *path, uint64_t flags, uint64_t mode);

#endif
