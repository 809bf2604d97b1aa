/* A mount of type cgroup2 at /sys/fs/cgroup, below the generated files that show a run its limits. Runtimes such as the Java
 * virtual machine read those files only if /proc/self/mountinfo lists a mount of this type there. */
#ifndef GLOVEBOX_CGROUP_MOUNT_H
#define GLOVEBOX_CGROUP_MOUNT_H

#include "prepare.h"

/* Mounts the hierarchy where only the guest finds it. Once in the life of a slot, in the cgroup namespace of the jails. Does
 * nothing where the kernel has no cgroup v2 or does not let the slot mount it: jails have no such mount then. */
void cgroup_mount_open(void);

/* Adds it to a jail that has its /sys, and covers it with the files of the run. Returns 0, or -1 with fail_text. */
int cgroup_mount_add(const struct preparation *preparation);

#endif
