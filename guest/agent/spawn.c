#include "spawn.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "../fail.h"
#include "../signals.h"
#include "become.h"
#include "builtin.h"
#include "spare-kernel.h"

void spawn_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_ours(struct spawn_ends *ends)
{
	spawn_close(&ends->in);
	spawn_close(&ends->out);
	spawn_close(&ends->err);
	spawn_close(&ends->channel);
	spawn_close(&ends->failure);
}

static void close_theirs(struct theirs *theirs)
{
	spawn_close(&theirs->in);
	spawn_close(&theirs->out);
	spawn_close(&theirs->err);
	spawn_close(&theirs->channel);
	spawn_close(&theirs->failure);
	spawn_close(&theirs->terminal);
}

static int open_pipe(int *ours, int *theirs, bool is_input)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return fail("make a pipe");
	*ours = ends[is_input ? 1 : 0];
	*theirs = ends[is_input ? 0 : 1];
	return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? fail("make a pipe non-blocking") : 0;
}

static int open_terminal(const struct spawn_request *request, struct spawn_ends *ends, struct theirs *theirs)
{
	const struct winsize size = {.ws_col = request->columns, .ws_row = request->rows};
	char name[64];
	int unlocked = 0;
	unsigned number;

	ends->out = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (ends->out < 0)
		return fail("open a terminal");
	if (ioctl(ends->out, TIOCSPTLCK, &unlocked) < 0 || ioctl(ends->out, TIOCGPTN, &number) < 0 ||
	    ioctl(ends->out, TIOCSWINSZ, &size) < 0)
		return fail("prepare a terminal");
	snprintf(name, sizeof(name), "/dev/pts/%u", number);
	theirs->terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (theirs->terminal < 0)
		return fail("open %s", name);
	ends->in = fcntl(ends->out, F_DUPFD_CLOEXEC, 0);
	return ends->in < 0 ? fail("copy the descriptor of a terminal") : 0;
}

static int open_streams(const struct spawn_request *request, struct spawn_ends *ends, struct theirs *theirs)
{
	int channel[2];

	if (open_pipe(&ends->failure, &theirs->failure, false) < 0)
		return -1;
	if (request->has_channel) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
			return fail("make the channel");
		ends->channel = channel[0];
		theirs->channel = channel[1];
		if (fcntl(ends->channel, F_SETFL, O_NONBLOCK) < 0)
			return fail("make the channel non-blocking");
	}
	if (request->columns > 0)
		return open_terminal(request, ends, theirs);
	if (open_pipe(&ends->out, &theirs->out, false) < 0 || open_pipe(&ends->err, &theirs->err, false) < 0)
		return -1;
	if (request->has_stdin)
		return open_pipe(&ends->in, &theirs->in, true);
	theirs->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return theirs->in < 0 ? fail("open /dev/null") : 0;
}

static _Noreturn void become_program(const struct spawn_request *request)
{
	if (request->builtin == BUILTIN_NONE)
		become_execute(request);
	if (signals_reset() < 0)
		become_give_up();
	environ = request->env;
	close(FAILURE);
	builtin_run(request->builtin, request->args);
}

pid_t spawn(const struct spawn_request *request, const struct preparation *limits, struct spawn_ends *ends)
{
	struct theirs theirs = THEIRS_NONE;
	pid_t pid = -1;

	*ends = (struct spawn_ends)SPAWN_ENDS_NONE;
	if (open_streams(request, ends, &theirs) == 0 && (pid = spare_kernel_start(request, &theirs)) < 0) {
		pid = fork();
		if (pid == 0) {
			become(request, limits, &theirs, request->builtin == BUILTIN_RESTORE);
			become_program(request);
		}
		if (pid < 0)
			fail("start a process");
	}
	close_theirs(&theirs);
	if (pid < 0)
		close_ours(ends);
	return pid;
}
