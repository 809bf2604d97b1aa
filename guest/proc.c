#include "proc.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

#include "binds.h"
#include "fail.h"
#include "views.h"

/* Entries of /proc that describe or control the machine. Masked files read as empty, masked directories are empty; none can
 * be written. Kernels without an entry need no mask for it. */
static const char *const hidden[] = {
	"acpi", "asound", "buddyinfo", "bus", "cmdline", "config.gz", "consoles", "devices", "diskstats", "dma",
	"driver", "fs", "interrupts", "iomem", "ioports", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg",
	"kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "locks", "mdstat", "misc", "modules", "mtrr",
	"pagetypeinfo", "partitions", "pressure", "sched_debug", "schedstat", "scsi", "slabinfo", "softirqs",
	"sysrq-trigger", "timer_list", "timer_stats", "tty", "vmallocinfo", "zoneinfo",
};
#define HIDDEN (sizeof(hidden) / sizeof(hidden[0]))

/* Found once per slot: a mount that fails takes longer than one that succeeds. */
static struct {
	const char *name;
	bool is_directory;
} masks[HIDDEN];
static size_t mask_count;

int proc_choose_masks(void)
{
	char path[64];
	struct stat found;

	for (size_t i = 0; i < HIDDEN; i++) {
		snprintf(path, sizeof(path), "/proc/%s", hidden[i]);
		if (lstat(path, &found) == 0) {
			masks[mask_count].name = hidden[i];
			masks[mask_count++].is_directory = S_ISDIR(found.st_mode);
		} else if (errno != ENOENT) {
			return fail("look for %s", path);
		}
	}
	return 0;
}

/* Needs the slot's /proc unmasked: the kernel refuses a fresh procfs where the visible one hides anything
 * (fs/namespace.c, mount_too_revealing). */
int proc_mount(void)
{
	char path[64];

	if (mount("proc", IMAGE "/proc", "proc", SEALED, NULL) < 0)
		return fail("mount /proc");
	for (size_t i = 0; i < mask_count; i++) {
		snprintf(path, sizeof(path), IMAGE "/proc/%s", masks[i].name);
		if (binds_add(masks[i].is_directory ? VIEWS_NOTHING : VIEWS_EMPTY, path) < 0)
			return -1;
	}
	if (binds_add(IMAGE "/proc/sys", IMAGE "/proc/sys") < 0)
		return -1;
	return binds_seal(IMAGE "/proc/sys", 0, READ_ONLY);
}
