#include "views.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "binds.h"
#include "fail.h"
#include "limit-views.h"

int views_make_empty(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

	if (fd < 0)
		return fail("make %s", path);
	close(fd);
	return 0;
}

static int write_view(const char *path, const char *text)
{
	FILE *file = fopen(path, "wxe");

	if (file == NULL)
		return fail("make %s", path);
	fputs(text, file);
	int broken = ferror(file) || fchmod(fileno(file), 0444) < 0;
	return fclose(file) != 0 || broken ? fail("write %s", path) : 0;
}

/* A random id as that of the boot, which would show two slots that they are on one machine. */
static int make_boot_id(void)
{
	char id[64] = "";
	FILE *from = fopen("/proc/sys/kernel/random/uuid", "re");
	bool is_read = from != NULL && fgets(id, sizeof(id), from) != NULL;

	if (from != NULL)
		fclose(from);
	return is_read ? write_view(VIEWS_STORE "/boot_id", id) : fail("read a random id");
}

/* As cgroup v2 shows its controllers: hierarchy 0. The machine's own file counts all groups on it. A Java virtual machine
 * looks for its limits only if all of these but pids are enabled. */
static const char controllers[] = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
				  "cpuset\t0\t1\t1\ncpu\t0\t1\t1\ncpuacct\t0\t1\t1\n"
				  "memory\t0\t1\t1\npids\t0\t1\t1\n";

int views_open(void)
{
	if (mkdir(VIEWS_STORE, 0755) < 0 || mkdir(VIEWS, 0755) < 0 || mkdir(VIEWS_STORE "/nothing", 0755) < 0)
		return fail("make the directories of views");
	/* What is bound from VIEWS inherits its flags: one seal for all of them, now and later. */
	if (binds_add(VIEWS_STORE, VIEWS) < 0 || binds_seal(VIEWS, 0, READ_ONLY) < 0)
		return -1;
	if (views_make_empty(VIEWS_STORE "/empty") < 0 ||
	    write_view(VIEWS_STORE "/loadavg", "0.00 0.00 0.00 1/1 1\n") < 0 ||
	    write_view(VIEWS_STORE "/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n") < 0 ||
	    write_view(VIEWS_STORE "/cgroups", controllers) < 0)
		return -1;
	return make_boot_id();
}

void views_path(char path[VIEW_PATH_BYTES], const char *base, const struct preparation *p, const char *name)
{
	snprintf(path, VIEW_PATH_BYTES, "%s/%u-%" PRIu64 "-%" PRIu64 "-%" PRIu64 "/%s", base, p->cpus, p->cpu_quota_us,
		 p->memory_bytes, p->pids, name);
}

FILE *views_create(const struct preparation *p, const char *name)
{
	char path[VIEW_PATH_BYTES];

	views_path(path, VIEWS_STORE, p, name);
	FILE *file = fopen(path, "wxe");
	if (file == NULL)
		fail("make %s", path);
	else
		fchmod(fileno(file), 0444);
	return file;
}

int views_finish(FILE *file, const char *name)
{
	int broken = ferror(file);

	return fclose(file) != 0 || broken ? fail("write the view %s", name) : 0;
}

int views_make_directory(const struct preparation *p, const char *name)
{
	char path[VIEW_PATH_BYTES];

	views_path(path, VIEWS_STORE, p, name);
	return mkdir(path, 0755) < 0 ? fail("make %s", path) : 0;
}

/* Times are zero, since runs must not see those of the machine. The boot time is not secret: /proc/uptime shows it. */
static int make_stat(const struct preparation *p)
{
	FILE *from = fopen("/proc/stat", "re");
	FILE *to = views_create(p, "stat");
	char line[256];

	if (to != NULL) {
		fputs("cpu  0 0 0 0 0 0 0 0 0 0\n", to);
		for (uint32_t cpu = 0; cpu < p->cpus; cpu++)
			fprintf(to, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", cpu);
		fputs("intr 0\nctxt 0\n", to);
		while (from != NULL && fgets(line, sizeof(line), from) != NULL)
			if (strncmp(line, "btime ", 6) == 0)
				fputs(line, to);
		fputs("processes 1\nprocs_running 1\nprocs_blocked 0\n", to);
	}
	if (from != NULL)
		fclose(from);
	return to == NULL ? -1 : views_finish(to, "stat");
}

/* The blocks of the first processors, as the machine describes them. */
static int make_cpuinfo(const struct preparation *p)
{
	FILE *from = fopen("/proc/cpuinfo", "re");
	FILE *to = views_create(p, "cpuinfo");
	char line[4096];
	uint32_t blocks = 0;

	while (from != NULL && to != NULL && fgets(line, sizeof(line), from) != NULL) {
		if (strncmp(line, "processor", 9) == 0 && blocks++ == p->cpus)
			break;
		fputs(line, to);
	}
	if (from != NULL)
		fclose(from);
	return to == NULL ? -1 : views_finish(to, "cpuinfo");
}

static int make_sys(const struct preparation *p)
{
	static const char *const parents[] = {"sys", "sys/devices", "sys/devices/system", "sys/devices/system/cpu",
					      "sys/fs"};
	static const char *const lists[] = {"online", "possible", "present"};
	char name[64];

	for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++)
		if (views_make_directory(p, parents[i]) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		snprintf(name, sizeof(name), "sys/devices/system/cpu/%s", lists[i]);
		FILE *file = views_create(p, name);
		if (file == NULL)
			return -1;
		if (p->cpus == 1)
			fputs("0\n", file);
		else
			fprintf(file, "0-%u\n", p->cpus - 1);
		if (views_finish(file, name) < 0)
			return -1;
	}
	for (uint32_t cpu = 0; cpu < p->cpus; cpu++) {
		snprintf(name, sizeof(name), "sys/devices/system/cpu/cpu%u", cpu);
		if (views_make_directory(p, name) < 0)
			return -1;
	}
	return 0;
}

int views_make(const struct preparation *p)
{
	char path[VIEW_PATH_BYTES];

	views_path(path, VIEWS_STORE, p, "ready");
	if (access(path, F_OK) == 0)
		return 0;
	if (views_make_directory(p, "") < 0 || make_stat(p) < 0 || make_cpuinfo(p) < 0 || make_sys(p) < 0 ||
	    limit_views_make(p) < 0)
		return -1;
	FILE *ready = views_create(p, "ready");
	return ready == NULL ? -1 : views_finish(ready, "ready");
}
