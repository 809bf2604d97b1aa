#include "zygote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "binds.h"
#include "descriptors.h"
#include "ids.h"
#include "pass.h"
#include "signals.h"

#define EXIT_NO_ZYGOTE 70

/* Three pipes, as a run has them, so that the interpreter finds the same kind of streams. Standard input stays empty; output
 * of imported modules goes to the diagnostics of the guest. */
static int take_streams(int socket)
{
	int empty[2];
	int slot = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);

	if (slot < 0 || pipe2(empty, O_CLOEXEC) < 0)
		return fail("the zygote's streams");
	/* First above the descriptor numbers that are about to be assigned. */
	int control = fcntl(socket, F_DUPFD_CLOEXEC, 16);
	int pid_namespace = fcntl(slot, F_DUPFD_CLOEXEC, 16);
	int nothing = fcntl(empty[0], F_DUPFD_CLOEXEC, 16);
	if (control < 0 || pid_namespace < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(2, 1) < 0 ||
	    dup2(control, ZYGOTE_SOCKET) < 0 || dup2(pid_namespace, ZYGOTE_PID_NAMESPACE) < 0)
		return fail("the zygote's streams");
	return descriptors_close_from(ZYGOTE_PID_NAMESPACE + 1);
}

/* Some modules write to the home directory while they are imported, and fail without one. So the zygote has its own, which
 * no run sees, in a mount namespace of its own. The image is already the root: a path in it cannot leave it. */
static int make_home(char *const *env)
{
	for (; *env != NULL; env++) {
		if (strncmp(*env, "HOME=", 5) != 0)
			continue;
		if (mount("tmpfs", *env + 5, "tmpfs", SEALED, "mode=0700,size=16m,nr_inodes=1024") < 0)
			return fail("give the zygote a home at %s", *env + 5);
	}
	return 0;
}

/* A slave mount: unmounts in the dock propagate here, and mounts made here propagate nowhere. */
static int take_mounts(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return fail("give the zygote mounts of its own");
	return 0;
}

/* A limit for the stack is read when an interpreter starts. */
static int limit_spare(bool is_spare)
{
	return is_spare ? ids_limit_fixed() : 0;
}

static _Noreturn void become_zygote(int socket, const struct preparation *p, bool is_spare)
{
	if (take_streams(socket) == 0 && signals_reset() == 0 && take_mounts() == 0 && limit_spare(is_spare) == 0 &&
	    ids_become_zygote(is_spare) == 0) {
		umask(022);
		if (chroot(IMAGE) < 0 || chdir("/") < 0)
			fail("enter the image");
		else if ((is_spare || make_home(p->env) == 0) && execve(p->args[0], p->args, p->env) < 0)
			fail("start %s", p->args[0]);
	}
	struct zygote_report report = {.word = ZYGOTE_FAILED};
	memcpy(report.text, fail_text(), sizeof(report.text));
	send(socket, &report, sizeof(report), MSG_NOSIGNAL);
	_exit(EXIT_NO_ZYGOTE);
}

int zygote_start(struct zygote *zygote, const struct preparation *p, bool is_spare)
{
	int sockets[2];

	*zygote = (struct zygote){.pid = 0, .socket = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return fail("make the zygote's socket");
	zygote->pid = fork();
	if (zygote->pid == 0)
		become_zygote(sockets[1], p, is_spare);
	close(sockets[1]);
	if (zygote->pid < 0) {
		close(sockets[0]);
		zygote->pid = 0;
		return fail("fork the zygote");
	}
	zygote->socket = sockets[0];
	return fcntl(zygote->socket, F_SETFL, O_NONBLOCK) < 0 ? fail("make the zygote's socket non-blocking") : 0;
}

int zygote_join(const struct zygote *zygote, const struct preparation *p, const int passed[JOIN_DESCRIPTORS])
{
	struct join join = {.open_files = p->open_files, .file_bytes = p->file_bytes, .pids = p->pids};

	strncpy(join.home, p->home, sizeof(join.home) - 1);
	return pass_send(zygote->socket, &join, sizeof(join), passed, JOIN_DESCRIPTORS) < 0 ? fail("ask the zygote") : 0;
}

int zygote_join_sandbox(const struct zygote *spare, const struct preparation *p, const int passed[JAIL_PASSED])
{
	const struct spare_join join = {.open_files = p->open_files, .file_bytes = p->file_bytes, .pids = p->pids};

	return pass_send(spare->socket, &join, sizeof(join), passed, JAIL_PASSED) < 0 ? fail("ask the spare interpreter") : 0;
}

int zygote_is_single_threaded(const struct zygote *zygote)
{
	char path[64];
	int threads = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", zygote->pid);
	DIR *tasks = opendir(path);
	if (tasks == NULL)
		return fail("count the zygote's threads");
	for (const struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks))
		threads += entry->d_name[0] != '.';
	closedir(tasks);
	if (threads == 1)
		return 0;
	errno = EBUSY;
	return fail("%d threads are left of what it imported", threads - 1);
}

int zygote_report(const struct zygote *zygote, struct zygote_report *report)
{
	ssize_t got = recv(zygote->socket, report, sizeof(*report), 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got != sizeof(*report))
		return -1;
	report->text[sizeof(report->text) - 1] = '\0';
	return 1;
}
