/* The guest: PID 1 of a slot. It makes one jail after another, as frames on its standard input say, and sends what
 * happens in them as frames on its standard output. PROTOCOL.md is the contract.
 *
 * Everything that a jail's program can influence reaches this process as bytes in two pipes that it copies without
 * looking at them, and as one wait status. */
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

#define EXIT_PROTOCOL 70 /* as PROTOCOL.md says; also when the slot can't be prepared */

struct guest {
	struct inbox inbox;
	struct outbox outbox;
	struct run run;
	int children; /* a signalfd for SIGCHLD */
};

enum watch { WATCH_RUNNER_IN, WATCH_RUNNER_OUT, WATCH_CHILDREN, WATCH_RUN, WATCHES = WATCH_RUN + RUN_WATCHES };

/* Ends the slot. Prints why, unless nobody empties standard error: that must not keep the slot alive. */
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

/* Everything that needs doing once in the life of a slot. */
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
	if (seccomp_build() < 0 || mounts_prepare_slot() < 0 || ids_keep_for_hosts() < 0 ||
	    ids_bound_capabilities() < 0)
		return -1;
	struct jailer jailer = {0};
	if (handover_open() < 0 || jailer_start(&jailer) < 0)
		return -1;
	run_none(&guest->run, jailer);
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
	while ((next = inbox_next(&guest->inbox, &frame)) == INBOX_FRAME) {
		const char *wrong = run_frame(&guest->run, &frame, &guest->outbox);
		if (wrong != NULL)
			die(wrong);
	}
	if (next == INBOX_BAD)
		die("a malformed frame");
}

static void reap(struct guest *guest)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(guest->children, &info, sizeof(info)) > 0)
		continue;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		const char *wrong = run_reaped(&guest->run, pid, status, &guest->outbox);
		if (wrong != NULL)
			die(wrong);
	}
}

static void send_waiting(struct guest *guest)
{
	if (!outbox_flush(&guest->outbox, 1))
		_exit(0); /* the runner is gone */
	if (guest->run.state != RUN_NONE)
		return;
	inbox_forget(&guest->inbox);
	if (outbox_is_empty(&guest->outbox))
		outbox_forget(&guest->outbox);
}

/* poll, not epoll: ten descriptors, which change with every run. The set is made anew from what the run holds, so
 * that no registration can outlive its descriptor and speak for the next one of that number. */
static void turn(struct guest *guest)
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
	/* Last, since room, credit and KILL let a run go on, too. That a watch may speak of a run that ended just now
	 * does no harm: every descriptor is non-blocking. */
	const char *wrong = run_advance(&guest->run, &watches[WATCH_RUN], &guest->outbox);
	send_waiting(guest);
	if (wrong != NULL)
		die(wrong);
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
		turn(&guest);
}
