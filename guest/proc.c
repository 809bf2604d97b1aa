#include "proc.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

#include "binds.h"
#include "fail.h"
#include "ids.h"
#include "net.h"
#include "views.h"

/* Entries of /proc that describe or control the machine. Masked files read as empty, masked directories are empty; none can
 * be written. Kernels without an entry need no mask for it. */
static const char *const hidden[] = {
	"acpi", "asound", "buddyinfo", "bus", "cmdline", "config.gz", "consoles", "devices", "diskstats", "dma",
	"driver", "fs", "interrupts", "iomem", "ioports", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg",
	"kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "locks", "mdstat", "misc", "modules", "mtrr",
	"pagetypeinfo", "partitions", "pressure", "sched_debug", "schedstat", "scsi", "slabinfo", "softirqs",
	"sysrq-trigger", "timer_list", "timer_stats", "tty", "vmallocinfo", "vmstat", "zoneinfo",
	/* Counters of the whole machine. */
	"sys/fs/dentry-state", "sys/fs/file-nr", "sys/fs/inode-nr", "sys/fs/inode-state", "sys/kernel/pty/nr",
};

/* Files that programs read, with what they show instead of facts of the machine. */
static const struct {
	const char *name;
	const char *view;
} replaced[] = {
	{"loadavg", VIEWS_LOADAVG},
	{"swaps", VIEWS_SWAPS},
	{"cgroups", VIEWS_CGROUPS},
	{"sys/kernel/random/boot_id", VIEWS_BOOT_ID},
};

#define MASKS_MAX (sizeof(hidden) / sizeof(hidden[0]) + sizeof(replaced) / sizeof(replaced[0]))

/* Found once per slot: a mount that fails takes longer than one that succeeds. */
static struct {
	const char *name;
	const char *view;
} masks[MASKS_MAX];
static size_t mask_count;

/* Whether the kernel opens the file to no process of a jail anyway, since it belongs to a user outside of the slot and
 * grants nothing to others. */
static bool is_closed(const struct stat *found)
{
	return (found->st_mode & S_IRWXO) == 0 && found->st_uid != JAIL_UID && found->st_gid != JAIL_GID;
}

/* `view` is NULL: what is empty. */
static int choose(const char *name, const char *view)
{
	char path[64];
	struct stat found;

	snprintf(path, sizeof(path), "/proc/%s", name);
	if (lstat(path, &found) < 0)
		return errno == ENOENT ? 0 : fail("look for %s", path);
	if (is_closed(&found))
		return 0;
	if (view == NULL)
		view = S_ISDIR(found.st_mode) ? VIEWS_NOTHING : VIEWS_EMPTY;
	masks[mask_count].name = name;
	masks[mask_count++].view = view;
	return 0;
}

int proc_choose_masks(void)
{
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (choose(hidden[i], NULL) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++)
		if (choose(replaced[i].name, replaced[i].view) < 0)
			return -1;
	return 0;
}

/* Needs the slot's /proc unmasked: the kernel refuses a fresh procfs where the visible one hides anything
 * (fs/namespace.c, mount_too_revealing). */
int proc_mount(void)
{
	char path[64];

	if (mount("proc", IMAGE "/proc", "proc", SEALED, NULL) < 0)
		return fail("mount /proc");
	if (net_limit_ended(IMAGE "/proc") < 0)
		return -1;
	if (binds_add(IMAGE "/proc/sys", IMAGE "/proc/sys") < 0 || binds_seal(IMAGE "/proc/sys", 0, READ_ONLY) < 0)
		return -1;
	for (size_t i = 0; i < mask_count; i++) {
		snprintf(path, sizeof(path), IMAGE "/proc/%s", masks[i].name);
		if (binds_add(masks[i].view, path) < 0)
			return -1;
	}
	return 0;
}
