#include "ids.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

#define KIB 1024u
#define MIB (1024u * KIB)

struct limit {
	__rlimit_resource_t resource;
	const char *name;
	rlim_t soft;
	rlim_t hard;
};

/* A limit of the profile is set as asked or not at all: the guest may not raise what the slot was given. */
static int set_asked(struct limit limit)
{
	const struct rlimit value = {.rlim_cur = limit.soft, .rlim_max = limit.hard};

	return setrlimit(limit.resource, &value) < 0 ? fail("set RLIMIT_%s", limit.name) : 0;
}

/* A fixed limit may already be stricter in the slot, and then stays so. */
static int set_at_most(struct limit limit)
{
	struct rlimit value;

	if (getrlimit(limit.resource, &value) < 0)
		return fail("read RLIMIT_%s", limit.name);
	if (value.rlim_max > limit.hard)
		value.rlim_max = limit.hard;
	value.rlim_cur = limit.soft < value.rlim_max ? limit.soft : value.rlim_max;
	return setrlimit(limit.resource, &value) < 0 ? fail("set RLIMIT_%s", limit.name) : 0;
}

int ids_limit(const struct preparation *p)
{
	const struct limit asked[] = {
		{RLIMIT_NOFILE, "NOFILE", p->open_files, p->open_files},
		{RLIMIT_FSIZE, "FSIZE", p->file_bytes, p->file_bytes},
		{RLIMIT_NPROC, "NPROC", p->pids, p->pids},
	};

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
		if (set_asked(asked[i]) < 0)
			return -1;
	return ids_limit_fixed();
}

int ids_limit_fixed(void)
{
	static const struct limit fixed[] = {
		/* Not 0: with a core_pattern that is a pipe the kernel ignores 0 (core(5)), but not 1. */
		{RLIMIT_CORE, "CORE", 1, 1},
		/* The usual 8 MiB; a program may ask for more, within reason. */
		{RLIMIT_STACK, "STACK", 8 * MIB, 1024 * MIB},
		{RLIMIT_MEMLOCK, "MEMLOCK", 64 * KIB, 64 * KIB},
		/* POSIX message queues are not among the calls of a jail. */
		{RLIMIT_MSGQUEUE, "MSGQUEUE", 0, 0},
		/* Queued signals and timers are kernel memory: enough for an event loop, not for a flood. */
		{RLIMIT_SIGPENDING, "SIGPENDING", 1024, 1024},
		{RLIMIT_NICE, "NICE", 0, 0},
		{RLIMIT_RTPRIO, "RTPRIO", 0, 0},
	};

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (set_at_most(fixed[i]) < 0)
			return -1;
	return 0;
}

int ids_offer_to_oom_killer(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return fail("open oom_score_adj");
	ssize_t put = write(fd, "500", 3);
	if (put < 0)
		fail("set oom_score_adj");
	close(fd);
	return put < 0 ? -1 : 0;
}

/* Those that act on files, processes and ports of the sandbox itself, for package managers and servers. None acts on a
 * namespace, a device, the network or a process that is not its own; chroot and mknod are not among them. */
static const int sandbox_capabilities[] = {
	CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_NET_BIND_SERVICE,
};

/* What a zygote needs to join a jail. */
static const int zygote_capabilities[] = {CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_SETUID, CAP_SETGID};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void add_inheritable(struct __user_cap_data_struct sets[], const int *capabilities, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sets[CAP_TO_INDEX(capabilities[i])].inheritable |= CAP_TO_MASK(capabilities[i]);
}

int ids_keep_inheritable(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, sets) < 0)
		return fail("read the capabilities");
	add_inheritable(sets, zygote_capabilities, COUNT(zygote_capabilities));
	add_inheritable(sets, sandbox_capabilities, COUNT(sandbox_capabilities));
	return syscall(SYS_capset, &header, sets) < 0 ? fail("make capabilities inheritable") : 0;
}

int ids_become_zygote(bool is_spare)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, sets) < 0)
		return fail("read the capabilities");
	for (size_t i = 0; i < COUNT(sets); i++)
		sets[i].inheritable = 0;
	add_inheritable(sets, zygote_capabilities, COUNT(zygote_capabilities));
	if (is_spare)
		add_inheritable(sets, sandbox_capabilities, COUNT(sandbox_capabilities));
	return syscall(SYS_capset, &header, sets) < 0 ? fail("limit the capabilities of the zygote") : 0;
}

int ids_bound_capabilities(void)
{
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return fail("clear the ambient capabilities");
	/* The kernel answers EINVAL to the first number that is no capability any more. */
	for (unsigned long capability = 0; capability < 64; capability++) {
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
			continue;
		return errno == EINVAL ? 0 : fail("drop capability %lu from the bounding set", capability);
	}
	return 0;
}

int ids_drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return syscall(SYS_capset, &header, none) < 0 ? fail("drop all capabilities") : 0;
}

int ids_become_sandbox_root(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

	/* Inheritable, since the bounding set is empty: then it is what a program of root gets at exec (capabilities(7)). */
	add_inheritable(sets, sandbox_capabilities, COUNT(sandbox_capabilities));
	for (size_t i = 0; i < COUNT(sets); i++)
		sets[i].effective = sets[i].permitted = sets[i].inheritable;
	return syscall(SYS_capset, &header, sets) < 0 ? fail("keep the capabilities of root in a sandbox") : 0;
}

int ids_become_user(void)
{
	if (setgroups(0, NULL) < 0)
		return fail("leave all groups");
	if (setresgid(JAIL_GID, JAIL_GID, JAIL_GID) < 0)
		return fail("become group %u", JAIL_GID);
	if (setresuid(JAIL_UID, JAIL_UID, JAIL_UID) < 0)
		return fail("become user %u", JAIL_UID);
	return ids_drop_capabilities();
}
