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
#include "pass.h"
#include "signals.h"

#define EXIT_NO_HOST 70

/* Three pipes, as a run has them, so that the interpreter finds the same kind of streams: nothing ever comes in, and
 * what is printed while modules are imported goes where the guest's own complaints go. */
static int take_streams(int socket)
{
	int empty[2];
	int slot = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);

	if (slot < 0 || pipe2(empty, O_CLOEXEC) < 0)
		return fail("the host's streams");
	/* First out of the way of the places that are about to be taken. */
	int talk = fcntl(socket, F_DUPFD_CLOEXEC, 16);
	int space = fcntl(slot, F_DUPFD_CLOEXEC, 16);
	int nothing = fcntl(empty[0], F_DUPFD_CLOEXEC, 16);
	if (talk < 0 || space < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(2, 1) < 0 ||
	    dup2(talk, HOST_SOCKET) < 0 || dup2(space, HOST_PID_NAMESPACE) < 0)
		return fail("the host's streams");
	return descriptors_close_from(HOST_PID_NAMESPACE + 1);
}

/* Modules keep settings and caches at home while they are imported, and some cannot be imported without. So the host has
 * a home that no run sees, in a mount namespace of its own. The image is the root by then: whatever a name in it leads
 * to, it leads to a place in it. */
static int make_home(char *const *env)
{
	for (; *env != NULL; env++) {
		if (strncmp(*env, "HOME=", 5) != 0)
			continue;
		if (mount("tmpfs", *env + 5, "tmpfs", SEALED, "mode=0700,size=16m,nr_inodes=1024") < 0)
			return fail("give the host a home at %s", *env + 5);
	}
	return 0;
}

/* A slave: what is detached in the dock goes here, too, and what is mounted here shows nowhere else. */
static int take_mounts(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return fail("give the host mounts of its own");
	return 0;
}

static _Noreturn void become_host(int socket, const struct preparation *p)
{
	if (take_streams(socket) == 0 && signals_reset() == 0 && take_mounts() == 0) {
		umask(022);
		if (chroot(IMAGE) < 0 || chdir("/") < 0)
			fail("enter the image");
		else if (make_home(p->env) == 0 && execve(p->args[0], p->args, p->env) < 0)
			fail("start %s", p->args[0]);
	}
	struct host_report report = {.word = HOST_FAILED};
	memcpy(report.text, fail_text(), sizeof(report.text));
	send(socket, &report, sizeof(report), MSG_NOSIGNAL);
	_exit(EXIT_NO_HOST);
}

int host_start(struct host *host, const struct preparation *p)
{
	int sockets[2];

	*host = (struct host){.pid = 0, .socket = -1};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return fail("make the host's socket");
	host->pid = fork();
	if (host->pid == 0)
		become_host(sockets[1], p);
	close(sockets[1]);
	if (host->pid < 0) {
		close(sockets[0]);
		host->pid = 0;
		return fail("fork the host");
	}
	host->socket = sockets[0];
	return fcntl(host->socket, F_SETFL, O_NONBLOCK) < 0 ? fail("make the host's socket non-blocking") : 0;
}

int host_join(const struct host *host, const struct preparation *p, const int passed[JOIN_DESCRIPTORS])
{
	struct join join = {.open_files = p->open_files, .file_bytes = p->file_bytes, .pids = p->pids};

	strncpy(join.home, p->home, sizeof(join.home) - 1);
	return pass_send(host->socket, &join, sizeof(join), passed, JOIN_DESCRIPTORS) < 0 ? fail("ask the host") : 0;
}

int host_is_alone(const struct host *host)
{
	char path[64];
	int threads = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", host->pid);
	DIR *tasks = opendir(path);
	if (tasks == NULL)
		return fail("count the host's threads");
	for (const struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks))
		threads += entry->d_name[0] != '.';
	closedir(tasks);
	if (threads == 1)
		return 0;
	errno = EBUSY;
	return fail("%d threads are left of what it imported", threads - 1);
}

int host_report(const struct host *host, struct host_report *report)
{
	ssize_t got = recv(host->socket, report, sizeof(*report), 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got != sizeof(*report))
		return -1;
	report->text[sizeof(report->text) - 1] = '\0';
	return 1;
}
