/* Opening what code in a sandbox has made. */
#ifndef GLOVEBOX_KERNEL_BENEATH_H
#define GLOVEBOX_KERNEL_BENEATH_H

#include <stdint.h>

/* openat2(2) from a directory: through directories of the same filesystem only, never waiting. Returns a descriptor, or
 * -1 with errno. */
int open_beneath(int directory, const char *path, uint64_t flags, uint64_t mode);

#endif
