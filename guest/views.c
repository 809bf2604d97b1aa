#include "views.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "binds.h"
#include "fail.h"

#define PATH_BYTES 160

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

int views_open(void)
{
	if (mkdir(VIEWS_STORE, 0755) < 0 || mkdir(VIEWS, 0755) < 0 || mkdir(VIEWS_STORE "/nothing", 0755) < 0)
		return fail("make the directories of views");
	/* What is bound from VIEWS inherits its flags: one seal for all of them, now and later. */
	if (binds_add(VIEWS_STORE, VIEWS) < 0 || binds_seal(VIEWS, 0, READ_ONLY) < 0)
		return -1;
	if (views_make_empty(VIEWS_STORE "/empty") < 0 ||
	    write_view(VIEWS_STORE "/loadavg", "0.00 0.00 0.00 1/1 1\n") < 0)
		return -1;
	return make_boot_id();
}

/* Opens <VIEWS_STORE>/cpus-<cpus>/<name> for writing; NULL with fail_text. */
static FILE *create(uint32_t cpus, const char *name)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), VIEWS_STORE "/cpus-%u/%s", cpus, name);
	FILE *file = fopen(path, "wxe");
	if (file == NULL)
		fail("make %s", path);
	else
		fchmod(fileno(file), 0444);
	return file;
}

static int finish(FILE *file, const char *name)
{
	int broken = ferror(file);

	return fclose(file) != 0 || broken ? fail("write the view %s", name) : 0;
}

static int make_directory(uint32_t cpus, const char *name)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), VIEWS_STORE "/cpus-%u/%s", cpus, name);
	return mkdir(path, 0755) < 0 ? fail("make %s", path) : 0;
}

/* Times are zero, since runs must not see those of the machine. The boot time is not secret: /proc/uptime shows it. */
static int make_stat(uint32_t cpus)
{
	FILE *from = fopen("/proc/stat", "re");
	FILE *to = create(cpus, "stat");
	char line[256];

	if (to != NULL) {
		fputs("cpu  0 0 0 0 0 0 0 0 0 0\n", to);
		for (uint32_t cpu = 0; cpu < cpus; cpu++)
			fprintf(to, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", cpu);
		fputs("intr 0\nctxt 0\n", to);
		while (from != NULL && fgets(line, sizeof(line), from) != NULL)
			if (strncmp(line, "btime ", 6) == 0)
				fputs(line, to);
		fputs("processes 1\nprocs_running 1\nprocs_blocked 0\n", to);
	}
	if (from != NULL)
		fclose(from);
	return to == NULL ? -1 : finish(to, "stat");
}

/* The blocks of the first processors, as the machine describes them. */
static int make_cpuinfo(uint32_t cpus)
{
	FILE *from = fopen("/proc/cpuinfo", "re");
	FILE *to = create(cpus, "cpuinfo");
	char line[4096];
	uint32_t blocks = 0;

	while (from != NULL && to != NULL && fgets(line, sizeof(line), from) != NULL) {
		if (strncmp(line, "processor", 9) == 0 && blocks++ == cpus)
			break;
		fputs(line, to);
	}
	if (from != NULL)
		fclose(from);
	return to == NULL ? -1 : finish(to, "cpuinfo");
}

static int make_sys(uint32_t cpus)
{
	static const char *const parents[] = {"sys", "sys/devices", "sys/devices/system", "sys/devices/system/cpu"};
	static const char *const lists[] = {"online", "possible", "present"};
	char name[64];

	for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++)
		if (make_directory(cpus, parents[i]) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		snprintf(name, sizeof(name), "sys/devices/system/cpu/%s", lists[i]);
		FILE *file = create(cpus, name);
		if (file == NULL)
			return -1;
		if (cpus == 1)
			fputs("0\n", file);
		else
			fprintf(file, "0-%u\n", cpus - 1);
		if (finish(file, name) < 0)
			return -1;
	}
	for (uint32_t cpu = 0; cpu < cpus; cpu++) {
		snprintf(name, sizeof(name), "sys/devices/system/cpu/cpu%u", cpu);
		if (make_directory(cpus, name) < 0)
			return -1;
	}
	return 0;
}

int views_make(uint32_t cpus)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), VIEWS_STORE "/cpus-%u/ready", cpus);
	if (access(path, F_OK) == 0)
		return 0;
	if (make_directory(cpus, "") < 0 || make_stat(cpus) < 0 || make_cpuinfo(cpus) < 0 || make_sys(cpus) < 0)
		return -1;
	FILE *ready = create(cpus, "ready");
	return ready == NULL ? -1 : finish(ready, "ready");
}
