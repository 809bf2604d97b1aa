/* The guest: PID 1 of a slot. It makes jails on request, one at a time: frames arrive on its standard input, and it sends
 * output and endings as frames on its standard output. PROTOCOL.md defines them.
 *
 * Everything that the program of a jail can influence reaches this process as bytes of pipes, which it copies without
 * interpreting them, and as one wait status. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#include "fail.h"
#include "frames.h"
#include "handover.h"
#include "ids.h"
#include "jailer.h"
#include "mounts.h"
#include "run.h"
#include "seccomp.h"

#define EXIT_PROTOCOL 70 /* PROTOCOL.md; also when the slot cannot be prepared */

struct guest {
	struct inbox inbox;
	struct outbox outbox;
	struct run run;
	int children; /* a signalfd for SIGCHLD */
};

enum watch { WATCH_RUNNER_IN, WATCH_RUNNER_OUT, WATCH_CHILDREN, WATCH_RUN, WATCHES = WATCH_RUN + RUN_WATCHES };

/* Ends the slot. Prints the reason, unless that would block: a full standard error must not keep the slot alive. */
static _Noreturn void die(const char *why)
{
	struct pollfd diagnostics = {.fd = 2, .events = POLLOUT};

	if (poll(&diagnostics, 1, 0) == 1 && (diagnostics.revents & POLLOUT) != 0)
		dprintf(2, "glovebox guest: %s\n", why);
	_exit(EXIT_PROTOCOL);
}

static int make_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? fail("make descriptor %d non-blocking", fd) : 0;
}

static int watch_children(int *children)
{
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_SETMASK, &child, NULL) < 0)
		return fail("block SIGCHLD");
	*children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	return *children < 0 ? fail("signalfd") : 0;
}

/* Set-up, once in the life of a slot. */
static int prepare(struct guest *guest)
{
	if (getpid() != 1) {
		errno = EPERM;
		return fail("not the first process of a pid namespace: jails could outlive the guest");
	}
	umask(0);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fail("no_new_privs");
	if (descriptors_close_from(3) < 0 || make_nonblocking(0) < 0 || make_nonblocking(1) < 0)
		return -1;
	if (watch_children(&guest->children) < 0)
		return -1;
	if (seccomp_build() < 0 || mounts_prepare_slot() < 0 || ids_keep_inheritable() < 0 ||
	    ids_bound_capabilities() < 0)
		return -1;
	struct jailer jailer = {0};
	if (handover_open() < 0 || jailer_start(&jailer) < 0)
		return -1;
	run_init(&guest->run, jailer);
	return inbox_open(&guest->inbox) < 0 ? -1 : outbox_open(&guest->outbox);
}

static void receive(struct guest *guest)
{
	struct frame frame;
	enum inbox_next next;

	switch (inbox_fill(&guest->inbox, 0)) {
	case INBOX_LATER: return;
	case INBOX_END: _exit(0); /* the kernel ends the slot with its first process */
	case INBOX_DATA: break;
	}
	while ((next = inbox_next(&guest->inbox, &frame, FRAME_SPARE)) == INBOX_FRAME) {
		const char *error = run_frame(&guest->run, &frame, &guest->outbox);
		if (error != NULL)
			die(error);
	}
	if (next == INBOX_BAD)
		die("malformed frame");
}

static void reap(struct guest *guest)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(guest->children, &info, sizeof(info)) > 0)
		continue;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		const char *error = run_reaped(&guest->run, pid, status, &guest->outbox);
		if (error != NULL)
			die(error);
	}
}

static void send_waiting(struct guest *guest)
{
	bool is_idle = guest->run.state == RUN_NONE;

	/* Before the end of the run is known outside, since its slot counts as free of its data then. */
	if (is_idle)
		inbox_forget(&guest->inbox);
	if (!outbox_flush(&guest->outbox, 1))
		_exit(0); /* the runner is gone */
	if (is_idle && outbox_is_empty(&guest->outbox))
		outbox_forget(&guest->outbox);
}

/* poll, not epoll: there are ten descriptors, and they change with every run. The set is rebuilt from the state of the
 * run, so that no registration can outlive its descriptor and apply to the next one with that number. */
static void poll_once(struct guest *guest)
{
	struct pollfd watches[WATCHES];
	bool waiting = !outbox_is_empty(&guest->outbox);

	watches[WATCH_RUNNER_IN] = (struct pollfd){.fd = 0, .events = POLLIN};
	watches[WATCH_RUNNER_OUT] = (struct pollfd){.fd = waiting ? 1 : -1, .events = POLLOUT};
	watches[WATCH_CHILDREN] = (struct pollfd){.fd = guest->children, .events = POLLIN};
	run_watch(&guest->run, &guest->outbox, &watches[WATCH_RUN]);
	if (poll(watches, WATCHES, -1) < 0) {
		if (errno == EINTR)
			return;
		fail("poll");
		die(fail_text());
	}

	if (watches[WATCH_RUNNER_OUT].revents != 0)
		send_waiting(guest);
	if (watches[WATCH_CHILDREN].revents != 0)
		reap(guest);
	if (watches[WATCH_RUNNER_IN].revents != 0)
		receive(guest);
	/* Last, since free room, credit and KILL change what the run can do. A result of poll may concern a run that has
	 * just ended; that is harmless, since every descriptor is non-blocking. */
	const char *error = run_advance(&guest->run, &watches[WATCH_RUN], &guest->outbox);
	send_waiting(guest);
	if (error != NULL)
		die(error);
}

int main(void)
{
	static struct guest guest;
	uint8_t version[4];
	uint8_t jailer[4];

	if (prepare(&guest) < 0)
		die(fail_text());
	write_u32(version, PROTOCOL_VERSION);
	if (!outbox_send(&guest.outbox, FRAME_HELLO, 0, version, sizeof(version)))
		die("no room for HELLO");
	write_u32(jailer, (uint32_t)guest.run.jailer.pid);
	if (!outbox_send(&guest.outbox, FRAME_FORKER, 0, jailer, sizeof(jailer)))
		die("no room for FORKER");
	send_waiting(&guest);
	for (;;)
		poll_once(&guest);
}
