/* Showing a file or directory at another place, and taking rights from what is shown. */
#ifndef GLOVEBOX_BINDS_H
#define GLOVEBOX_BINDS_H

#include <stdint.h>
#include <sys/mount.h>

#include <linux/mount.h>

/* Where the slot finds the mounts that the image consists of, side by side. Other slots have the same. */
#define SHARED_IMAGE "/image"

/* The root of jails: the image below overlays of the slot. */
#define IMAGE "/scratch/root"

/* For mount(2). */
#define SAFE (MS_NOSUID | MS_NODEV)
#define SEALED (SAFE | MS_NOEXEC)

/* For binds_seal. */
#define READ_ONLY (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Shows `from` at `to`, with the flags of the mount that `from` lies on. Returns 0, or -1 with fail_text. */
int binds_add(const char *from, const char *to);

/* Adds flags (MOUNT_ATTR_*) to a mount, with AT_RECURSIVE as `how` to all below it, too; takes none away.
 * Returns 0, or -1 with fail_text. */
int binds_seal(const char *path, unsigned how, uint64_t flags);

#endif
