/* Flags of mount(2) and umount(2). */
#ifndef GLOVEBOX_KERNEL_MOUNT_FLAGS_H
#define GLOVEBOX_KERNEL_MOUNT_FLAGS_H

/* <sys/mount.h> and <linux/mount.h> exclude each other in some versions of glibc. */
#ifndef MS_BIND
#define MS_RDONLY 1
#define MS_NOSUID 2
#define MS_NODEV 4
#define MS_NOEXEC 8
#define MS_REMOUNT 32
#define MS_BIND 4096
#define MS_REC 16384
#define MS_PRIVATE (1 << 18)
#define MS_SLAVE (1 << 19)
#endif
#ifndef MS_SHARED
#define MS_SHARED (1 << 20)
#endif
#ifndef MNT_DETACH
#define MNT_DETACH 2
#endif
#ifndef UMOUNT_NOFOLLOW
#define UMOUNT_NOFOLLOW 8
#endif

#endif
