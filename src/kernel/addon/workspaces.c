/* Mounts of host directories that an operator shares with a sandbox. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int write_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);
	bool is_written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
	int error = errno;

	if (file >= 0)
		close(file);
	errno = error;
	return is_written ? 0 : -1;
}

/* Writes the maps of a process in a new user namespace, and opens the namespace. */
static int open_mapped(struct job *job, int process)
{
	char path[64];
	char map[64];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", process, i == 0 ? "uid_map" : "gid_map");
		snprintf(map, sizeof(map), "%lld %lld 1\n", (long long)job->number[i], (long long)job->number[2 + i]);
		if (write_file(path, map) < 0) {
			job_fail(job, i == 0 ? "uid_map" : "gid_map");
			return -1;
		}
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/user", process);
	int opened = open(path, O_RDONLY | O_CLOEXEC);
	if (opened < 0)
		job_fail(job, "open");
	return opened;
}

/* openOwnerNamespace(uid, gid, shownUid, shownGid): returns a descriptor of a user namespace that maps one user and one
 * group, for idmapped mounts. A namespace needs a process to be created; the child lives until it is open. */
static void open_owner_namespace(struct job *job)
{
	/* Without a new stack, as fork(2). The child calls nothing but the kernel: other threads may hold locks. */
	long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0);

	if (child < 0) {
		job_fail(job, "clone");
		return;
	}
	if (child == 0) {
		syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		for (;;)
			syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	}
	job->result[0] = open_mapped(job, (int)child);
	kill((pid_t)child, SIGKILL);
	while (waitpid((pid_t)child, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Sets the user and group with which this thread accesses files, and keeps its capabilities, which setfsuid(2) clears. */
static int access_files_as(uid_t user, gid_t group)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct capabilities[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, capabilities) < 0)
		return -1;
	syscall(SYS_setfsgid, group);
	syscall(SYS_setfsuid, user);
	return (int)syscall(SYS_capset, &header, capabilities);
}

/* mountReview(lower, upper, work, target, uid, gid): an overlay that shows `lower` and keeps changes in `upper`. Renamed
 * directories and changed attributes are copied, so that `upper` can be read without an overlay. The kernel makes changes
 * as the user of the mount, who must have an ID in the idmapped mount of `upper`. */
static void mount_review(struct job *job)
{
	char options[3 * 4096 + 128];
	int length = snprintf(options, sizeof(options),
			      "lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=nofollow,metacopy=off,index=off,xino=off",
			      job->text[0], job->text[1], job->text[2]);

	if (length >= (int)sizeof(options)) {
		errno = ENAMETOOLONG;
		job_fail(job, "mount");
		return;
	}
	if (access_files_as((uid_t)job->number[0], (gid_t)job->number[1]) < 0)
		job_fail(job, "capset");
	else if (syscall(SYS_mount, "overlay", job->text[3], "overlay", MS_NOSUID | MS_NODEV, options) < 0)
		job_fail(job, "mount");
	if (access_files_as(geteuid(), getegid()) < 0 && job->error == 0)
		job_fail(job, "capset");
}

/* isOpaque(directory): returns whether a directory of an upper layer hides what is below it in the lower layer */
static void is_opaque(struct job *job)
{
	char value = 0;

	job->result[0] =
		fgetxattr((int)job->number[0], "trusted.overlay.opaque", &value, sizeof(value)) == 1 && value == 'y';
}

const struct operation workspace_operations[] = {
	{"openOwnerNamespace", "nnnn", RESULT_NUMBER, open_owner_namespace},
	{"mountReview", "ttttnn", RESULT_NONE, mount_review},
	{"isOpaque", "n", RESULT_NUMBER, is_opaque},
	{NULL, NULL, RESULT_NONE, NULL},
};
