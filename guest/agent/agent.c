#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../descriptors.h"
#include "../fail.h"
#include "../frames.h"
#include "../sandbox.h"
#include "process.h"
#include "protocol.h"
#include "request.h"

#define EXIT_AGENT_FAILED 70

struct agent {
	const struct preparation *limits;
	struct inbox inbox;
	struct outbox outbox;
	struct processes processes;
	int children; /* a signalfd for SIGCHLD */
};

enum watch { WATCH_IN, WATCH_OUT, WATCH_CHILDREN, WATCH_PROCESSES, WATCHES = WATCH_PROCESSES + PROCESS_WATCHES * PROCESSES_MAX };

/* A runner that breaks the protocol, or the memory that ran out: the sandbox ends. */
static _Noreturn void die(void)
{
	_exit(EXIT_AGENT_FAILED);
}

static void open_agent(struct agent *agent)
{
	sigset_t child;

	if (descriptors_close_from_but(3, SANDBOX_STATES, SANDBOX_SPARE) < 0)
		die();
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	signal(SIGPIPE, SIG_IGN);
	agent->children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (agent->children < 0 || sigprocmask(SIG_SETMASK, &child, NULL) < 0)
		die();
	for (int fd = 0; fd < 2; fd++)
		if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			die();
	if (inbox_open(&agent->inbox) < 0 || outbox_open(&agent->outbox) < 0)
		die();
}

static void refuse(struct agent *agent, uint32_t number, const char *why)
{
	if (!outbox_send(&agent->outbox, AGENT_NOT_STARTED, number, why, (uint32_t)strlen(why)))
		die();
}

static void start(struct agent *agent, const struct frame *frame)
{
	struct spawn_request request;

	if (frame->run == 0 || processes_find(&agent->processes, frame->run) != NULL)
		die();
	struct process *process = processes_add(&agent->processes);
	if (process == NULL) {
		refuse(agent, frame->run, "too many processes were started");
		return;
	}
	const char *error = request_parse(&request, frame->payload, frame->length);
	if (error == NULL && process_start(process, frame->run, &request, agent->limits) < 0)
		error = fail_text();
	if (error != NULL)
		refuse(agent, frame->run, error);
	request_forget(&request);
}

/* A frame about a process that has ended crossed its end. */
static void take(struct agent *agent, const struct frame *frame)
{
	struct process *process = processes_find(&agent->processes, frame->run);

	if (frame->kind == AGENT_SPAWN)
		start(agent, frame);
	else if (process != NULL && !process_take(process, frame))
		die();
}

static void receive(struct agent *agent)
{
	struct frame frame;
	enum inbox_next next;

	switch (inbox_fill(&agent->inbox, 0)) {
	case INBOX_LATER: return;
	case INBOX_END: _exit(0); /* the kernel ends the sandbox with its init */
	case INBOX_DATA: break;
	}
	while ((next = inbox_next(&agent->inbox, &frame, AGENT_RESIZE)) == INBOX_FRAME)
		take(agent, &frame);
	if (next == INBOX_BAD)
		die();
	if (agent->inbox.start == agent->inbox.end)
		inbox_forget(&agent->inbox);
}

/* Every process of the sandbox that lost its parent is a child of the agent as well. */
static void reap(struct agent *agent)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(agent->children, &info, sizeof(info)) > 0)
		continue;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		processes_reaped(&agent->processes, pid, status);
}

static void poll_once(struct agent *agent)
{
	static struct pollfd watches[WATCHES];
	bool waiting = !outbox_is_empty(&agent->outbox);
	bool has_room = outbox_has_room(&agent->outbox);

	watches[WATCH_IN] = (struct pollfd){.fd = 0, .events = POLLIN};
	watches[WATCH_OUT] = (struct pollfd){.fd = waiting ? 1 : -1, .events = POLLOUT};
	watches[WATCH_CHILDREN] = (struct pollfd){.fd = agent->children, .events = POLLIN};
	size_t count = WATCH_PROCESSES + processes_watch(&agent->processes, has_room, &watches[WATCH_PROCESSES]);
	if (poll(watches, count, -1) < 0) {
		if (errno == EINTR)
			return;
		die();
	}
	if (watches[WATCH_CHILDREN].revents != 0)
		reap(agent);
	/* Before what was received can add or remove processes, to which the poll set does not apply. */
	if (!processes_advance(&agent->processes, &watches[WATCH_PROCESSES], &agent->outbox))
		die();
	if (watches[WATCH_IN].revents != 0)
		receive(agent);
	if (!outbox_flush(&agent->outbox, 1))
		_exit(0);
	if (outbox_is_empty(&agent->outbox))
		outbox_forget(&agent->outbox);
}

_Noreturn void agent_serve(const struct preparation *limits)
{
	static struct agent agent;

	agent.limits = limits;
	open_agent(&agent);
	for (;;)
		poll_once(&agent);
}
