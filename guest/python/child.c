#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../descriptors.h"
#include "../ids.h"
#include "../jail.h"
#include "../seccomp.h"
#include "interpreter.h"
#include "report.h"

/* The descriptor for reports and the request, until that has arrived. */
#define CONTROL_FD 3

/* How long no request arrives before page faults are taken in advance. */
#define QUIET_MS 2

/* A plain interpreter has 5 MiB of writable memory. */
#define COPIED_AHEAD_MAX_BYTES (8u * 1024 * 1024)

/* Since Linux 5.14; older headers lack them. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Turns the child into a process of the jail and of its user. */
static int enter_jail(const struct join *join, const int passed[JOIN_DESCRIPTORS])
{
	static const struct {
		enum join_descriptor descriptor;
		int type;
	} namespaces[] = {
		{JOIN_NET, CLONE_NEWNET}, {JOIN_IPC, CLONE_NEWIPC}, {JOIN_UTS, CLONE_NEWUTS}, {JOIN_MNT, CLONE_NEWNS},
	};
	struct preparation limits = {
		.open_files = join->open_files,
		.file_bytes = join->file_bytes,
		.pids = join->pids,
	};

	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
		if (setns(passed[namespaces[i].descriptor], namespaces[i].type) < 0)
			return fail("join a namespace of the jail");
	if (dup2(passed[JOIN_IN], 0) < 0 || dup2(passed[JOIN_OUT], 1) < 0 || dup2(passed[JOIN_ERR], 2) < 0 ||
	    dup2(passed[JOIN_PICTURES], PICTURES_FD) < 0 || descriptors_close_from_but(CONTROL_FD + 1, PICTURES_FD, PICTURES_FD) < 0)
		return fail("take the run's streams");
	umask(022);
	if (ids_offer_to_oom_killer() < 0 || ids_limit(&limits) < 0 || ids_become_user() < 0)
		return -1;
	/* As exec does: otherwise root would own everything in /proc/self. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return fail("become dumpable");
	if (setsid() < 0 || chdir(join->home) < 0)
		return fail("enter %s in a session of its own", join->home);
	return seccomp_load();
}

static void report(uint8_t kind)
{
	struct report ready = {.kind = kind};

	if (kind == REPORT_FAILED)
		memcpy(ready.text, fail_text(), sizeof(ready.text));
	send(CONTROL_FD, &ready, sizeof(ready), MSG_NOSIGNAL);
}

static char *read_whole(size_t bytes)
{
	char *text = malloc(bytes + 1);
	size_t filled = 0;

	while (text != NULL && filled < bytes) {
		ssize_t got = read(0, text + filled, bytes - filled);
		if (got <= 0 && !(got < 0 && errno == EINTR))
			_exit(EXIT_ZYGOTE_FAILED); /* the guest is gone */
		filled += got > 0 ? (size_t)got : 0;
	}
	if (text == NULL)
		_exit(EXIT_ZYGOTE_FAILED);
	text[bytes] = '\0';
	return text;
}

static void take_request(const struct join *join)
{
	struct run_request request;
	ssize_t got;

	do
		got = recv(CONTROL_FD, &request, sizeof(request), 0);
	while (got < 0 && errno == EINTR);
	if (got != sizeof(request))
		_exit(EXIT_ZYGOTE_FAILED);
	close(CONTROL_FD);
	/* Storage was mounted over the directory that is the working directory. */
	if (request.has_storage && chdir(join->home) < 0)
		_exit(EXIT_ZYGOTE_FAILED);
	char *variables = read_whole(request.env_bytes);
	if (interpreter_begin(variables, request.env_bytes) < 0)
		_exit(EXIT_ZYGOTE_FAILED);
	explicit_bzero(variables, request.env_bytes);
	free(variables);
}

/* Takes the page faults of the run while it is not requested yet: a fork shares every page until one side writes to it,
 * and has no page of the program text mapped. Measured: 1.2 of 3.1 ms less between request and end, for 1.8 ms more in
 * all. Failures are ignored. */
static void fault_ahead(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned long from, to;
	char rights[5];
	size_t copied = 0;

	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || rights[0] != 'r' || rights[3] != 'p')
			continue;
		if (rights[1] != 'w') {
			madvise((void *)from, to - from, MADV_POPULATE_READ);
			continue;
		}
		/* Imported modules may be large, and most of their memory is never written to. */
		copied += to - from;
		if (copied <= COPIED_AHEAD_MAX_BYTES)
			madvise((void *)from, to - from, MADV_POPULATE_WRITE);
	}
	if (maps != NULL)
		fclose(maps);
}

void child_become_run(const struct join *join, const int passed[JOIN_DESCRIPTORS])
{
	/* Replaces the socket of the zygote. */
	if (dup3(passed[JOIN_CONTROL], CONTROL_FD, O_CLOEXEC) < 0)
		_exit(EXIT_ZYGOTE_FAILED);
	if (enter_jail(join, passed) < 0) {
		report(REPORT_FAILED);
		_exit(EXIT_ZYGOTE_FAILED);
	}
	interpreter_after_fork();
	report(REPORT_READY);
	/* A request that follows at once does not wait for this, and a busy machine is not loaded further. */
	struct pollfd request = {.fd = CONTROL_FD, .events = POLLIN};
	if (poll(&request, 1, QUIET_MS) == 0)
		fault_ahead();
	take_request(join);
}
