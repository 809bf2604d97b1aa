/* The mounts of a jail. */
#ifndef GLOVEBOX_MOUNTS_H
#define GLOVEBOX_MOUNTS_H

#include <stdint.h>

#include "prepare.h"

/* The directory of the slot in which storage is mounted while a run uses it. */
#define DOCK "/dock"

/* Room for the path of an entry of the dock. */
#define DOCK_PATH_BYTES 264

/* Each returns 0, or -1 with fail_text, if nothing else is said. */

/* Once per slot: makes the mounts that are the same in each of its jails, which inherit them with the mount namespace. */
int mounts_prepare_slot(void);

/* Checks that a path leads through directories of the image only, without links. */
int mounts_check_point(const char *path);

/* In the guest, before each jail: checks the mount points of the run, and creates the files that show it `cpus` processors
 * unless they exist. */
int mounts_prepare_run(const struct preparation *preparation);

/* In the init of a jail: makes the mounts of the run, makes the image the root, and detaches the root of the slot. Returns what
 * code_file_mount does. */
int mounts_enter(const struct preparation *preparation);

/* Enters the root of the image, and detaches the root of the slot. */
int mounts_enter_image(void);

/* Mounts the writable places of a jail, and the files that show it its limits. */
int mounts_make_own(const struct preparation *preparation);

/* Mounts an entry of the dock at a path. */
int mounts_add_storage(const char *path, const char *name);

/* Checks that something is mounted at an entry of the dock, and writes its path. */
int mounts_find_in_dock(char path[DOCK_PATH_BYTES], const char *name);

/* Mounts a tmpfs with a limit on its bytes and inodes. `owner`: its options for mode and ids. */
int mounts_add_tmpfs(const char *path, unsigned long flags, const char *owner, uint64_t bytes);

/* The directory of a jail that contains the volumes of its run. */
#define VOLUMES "/volumes"

/* The home of the user in a sandbox, where its thread is mounted if it has one. */
#define SANDBOX_HOME "/home/baponi"

/* Clones the mount at an entry of the dock, with all mounts below it. Returns a descriptor of a mount that is not attached
 * anywhere, or -1 with fail_text. */
int mounts_clone_storage(const char *dock);

/* Attaches that mount at a path in the mount namespace of the caller. Returns 0, or -1 with fail_text. */
int mounts_attach_storage(int storage, const char *path);

#endif
