#include "limit-views.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "views.h"

#define CGROUP CGROUP_VIEWS
#define CPU_PERIOD_US 100000u

__attribute__((format(printf, 3, 4))) static int write_file(const struct preparation *p, const char *name,
							    const char *format, ...)
{
	va_list values;
	FILE *file = views_create(p, name);

	if (file == NULL)
		return -1;
	va_start(values, format);
	vfprintf(file, format, values);
	va_end(values);
	return views_finish(file, name);
}

/* What a run uses is not in the file, which does not change: all memory that it was granted counts as available. */
static int make_meminfo(const struct preparation *p)
{
	uint64_t kib = p->memory_bytes / 1024;

	return write_file(p, "meminfo",
			  "MemTotal:       %8" PRIu64 " kB\nMemFree:        %8" PRIu64 " kB\nMemAvailable:   %8" PRIu64
			  " kB\nBuffers:               0 kB\nCached:                0 kB\nSwapCached:            0 kB\n"
			  "Active:                0 kB\nInactive:              0 kB\nSwapTotal:             0 kB\n"
			  "SwapFree:              0 kB\nShmem:                 0 kB\nSlab:                  0 kB\n"
			  "SReclaimable:          0 kB\nSUnreclaim:            0 kB\nHugePages_Total:       0\n"
			  "HugePages_Free:        0\nHugepagesize:       2048 kB\n",
			  kib, kib, kib);
}

/* memory.current is there since programs fail without it. What the run uses is not in it, as in meminfo, but it is not 0: then
 * a Java virtual machine takes the free memory of the machine for that of the run. A bind of the real file would be a second
 * mount of type cgroup2, which a Java virtual machine takes for the place of the hierarchy. */
#define MEMORY_CURRENT "4096\n"

static int make_v2(const struct preparation *p)
{
	if (write_file(p, CGROUP "/cgroup.controllers", "cpu memory pids\n") < 0 ||
	    write_file(p, CGROUP "/cpu.max", "%" PRIu64 " %u\n", p->cpu_quota_us, CPU_PERIOD_US) < 0)
		return -1;
	if (write_file(p, CGROUP "/memory.max", "%" PRIu64 "\n", p->memory_bytes) < 0 ||
	    write_file(p, CGROUP "/memory.current", MEMORY_CURRENT) < 0 ||
	    write_file(p, CGROUP "/memory.high", "max\n") < 0 || write_file(p, CGROUP "/memory.swap.max", "0\n") < 0)
		return -1;
	return write_file(p, CGROUP "/pids.max", "%" PRIu64 "\n", p->pids);
}

static int make_v1(const struct preparation *p)
{
	static const char *const directories[] = {CGROUP "/memory", CGROUP "/cpu", CGROUP "/pids"};

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		if (views_make_directory(p, directories[i]) < 0)
			return -1;
	if (write_file(p, CGROUP "/cpu/cpu.cfs_quota_us", "%" PRIu64 "\n", p->cpu_quota_us) < 0 ||
	    write_file(p, CGROUP "/cpu/cpu.cfs_period_us", "%u\n", CPU_PERIOD_US) < 0)
		return -1;
	if (write_file(p, CGROUP "/memory/memory.limit_in_bytes", "%" PRIu64 "\n", p->memory_bytes) < 0 ||
	    write_file(p, CGROUP "/memory/memory.soft_limit_in_bytes", "%" PRIu64 "\n", p->memory_bytes) < 0)
		return -1;
	return write_file(p, CGROUP "/pids/pids.max", "%" PRIu64 "\n", p->pids);
}

int limit_views_make(const struct preparation *p)
{
	if (make_meminfo(p) < 0 || views_make_directory(p, CGROUP) < 0)
		return -1;
	return make_v2(p) < 0 ? -1 : make_v1(p);
}
