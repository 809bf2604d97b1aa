#include "jailer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cgroup-mount.h"
#include "descriptors.h"
#include "devices.h"
#include "fail.h"
#include "mounts.h"
#include "pass.h"

/* Descriptors of the jailer: its end of the socket, and the mount namespace of the slot. */
#define SOCKET 3
#define MOUNTS 4

#define EXIT_NO_GUEST 0
#define EXIT_JAILER_FAILED 70

/* The order in which a request carries the descriptors of a jail. */
enum { FD_CHANNEL, FD_IN, FD_OUT, FD_ERR, FD_PICTURES, JAIL_FDS };

/* The number of descriptors distinguishes two requests: JAIL_FDS to make a jail; one, a mount namespace, to attach storage. */
struct request {
	char dock[NAME_MAX + 1]; /* entry of the dock for the home; empty: none */
	char volumes[NAME_MAX + 1]; /* entry of the dock for VOLUMES; empty: none */
	char home[1025];
};

struct answer {
	pid_t init; /* 0: storage is attached; -1: `text` says why it did not work */
	char text[FAIL_TEXT_BYTES];
};

/* Makes the cgroup of runs the root that every jail sees, once the runner has moved the jailer there. */
static int root_at_cgroup_of_runs(void)
{
	static bool is_done;

	if (is_done)
		return 0;
	if (unshare(CLONE_NEWCGROUP) < 0)
		return fail("make a cgroup namespace");
	is_done = true;
	cgroup_mount_open();
	return 0;
}

static pid_t clone_init(const struct child_fds *child_fds)
{
	const unsigned long fresh = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;

	/* Not clone3, which the slot's filter answers with ENOSYS. All arguments but the flags are zero, so that their
	 * order, which differs between architectures, does not matter. */
	pid_t init = (pid_t)syscall(SYS_clone, fresh | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
	if (init == 0)
		jail_become_init(child_fds);
	if (init < 0)
		fail("clone the jail's init");
	return init;
}

static int become_jailer(int socket)
{
	int nothing = open(DEVICES "/null", O_RDWR | O_CLOEXEC);

	/* A jailer that outlived the guest would keep the streams of the slot open. */
	if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0)
		return fail("give the jailer streams of its own");
	if (socket != SOCKET && dup3(socket, SOCKET, O_CLOEXEC) < 0)
		return fail("give the jailer its socket");
	if (prctl(PR_SET_NAME, "jailer", 0, 0, 0) < 0)
		return fail("name the jailer");
	int mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (mounts < 0 || (mounts != MOUNTS && dup3(mounts, MOUNTS, O_CLOEXEC) < 0))
		return fail("keep the slot's mounts");
	return descriptors_close_from(MOUNTS + 1);
}

/* Attaches storage to a jail: clones the mount in the mount namespace of the slot, and moves it into that of the jail. */
static pid_t attach(const struct request *request, int jail)
{
	const struct {
		const char *dock;
		const char *path;
	} parts[] = {{request->dock, request->home}, {request->volumes, VOLUMES}};
	int storage[] = {-1, -1};
	int put = 0;

	for (size_t i = 0; i < 2; i++)
		if (parts[i].dock[0] != '\0' && (storage[i] = mounts_clone_storage(parts[i].dock)) < 0)
			return -1;
	if (setns(jail, CLONE_NEWNS) < 0)
		return fail("enter the jail's mounts");
	for (size_t i = 0; i < 2 && put == 0; i++)
		if (storage[i] >= 0)
			put = mounts_attach_storage(storage[i], parts[i].path);
	if (setns(MOUNTS, CLONE_NEWNS) < 0)
		_exit(EXIT_JAILER_FAILED);
	return put;
}

static struct answer handle(const struct request *request, const int passed[JAIL_FDS], size_t count)
{
	struct answer answer = {.init = -1};

	errno = EBADMSG;
	if (count == JAIL_FDS) {
		const struct child_fds child_fds = {passed[FD_CHANNEL], passed[FD_IN], passed[FD_OUT], passed[FD_ERR],
					   passed[FD_PICTURES]};
		answer.init = root_at_cgroup_of_runs() < 0 ? -1 : clone_init(&child_fds);
	} else if (count == 1) {
		answer.init = attach(request, passed[0]);
	} else {
		fail("understand a request");
	}
	if (answer.init < 0)
		memcpy(answer.text, fail_text(), sizeof(answer.text));
	return answer;
}

static _Noreturn void serve(int socket)
{
	struct request request;
	int passed[JAIL_FDS];
	size_t count;
	int more = become_jailer(socket);

	while (more == 0 && (more = pass_receive(SOCKET, &request, sizeof(request), passed, JAIL_FDS, &count)) > 0) {
		struct answer answer = handle(&request, passed, count);
		descriptors_close_from(MOUNTS + 1);
		more = send(SOCKET, &answer, sizeof(answer), MSG_NOSIGNAL) < 0 ? -1 : 0;
	}
	_exit(more == 0 ? EXIT_NO_GUEST : EXIT_JAILER_FAILED);
}

int jailer_start(struct jailer *jailer)
{
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return fail("make the jailer's socket");
	jailer->pid = fork();
	if (jailer->pid == 0)
		serve(sockets[1]);
	close(sockets[1]);
	if (jailer->pid < 0)
		return fail("fork the jailer");
	jailer->socket = sockets[0];
	return fcntl(jailer->socket, F_SETFL, O_NONBLOCK) < 0 ? fail("make the jailer's socket non-blocking") : 0;
}

int jailer_ask(const struct jailer *jailer, const struct child_fds *child_fds)
{
	const int passed[JAIL_FDS] = {child_fds->channel, child_fds->in, child_fds->out, child_fds->err, child_fds->pictures};
	const struct request request = {.dock = ""};

	return pass_send(jailer->socket, &request, sizeof(request), passed, JAIL_FDS) < 0 ? fail("ask the jailer") : 0;
}

int jailer_attach(const struct jailer *jailer, int mount_namespace, const char *dock, const char *volumes,
		  const char *home)
{
	struct request request = {.dock = ""};

	if (dock != NULL)
		strncpy(request.dock, dock, sizeof(request.dock) - 1);
	if (volumes != NULL)
		strncpy(request.volumes, volumes, sizeof(request.volumes) - 1);
	strncpy(request.home, home, sizeof(request.home) - 1);
	return pass_send(jailer->socket, &request, sizeof(request), &mount_namespace, 1) < 0 ? fail("ask the jailer") : 0;
}

enum jailer_answer jailer_answer(const struct jailer *jailer, pid_t *init, char text[FAIL_TEXT_BYTES])
{
	struct answer answer;

	ssize_t got = recv(jailer->socket, &answer, sizeof(answer), 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return JAILER_LATER;
	if (got != sizeof(answer))
		return JAILER_GONE;
	if (answer.init >= 0) {
		*init = answer.init;
		return JAILER_DONE;
	}
	answer.text[sizeof(answer.text) - 1] = '\0';
	memcpy(text, answer.text, sizeof(answer.text));
	return JAILER_FAILED;
}
