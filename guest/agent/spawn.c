#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "../descriptors.h"
#include "../fail.h"
#include "../ids.h"
#include "../sandbox.h"
#include "../signals.h"
#include "builtin.h"
#include "users.h"

/* Descriptors of a new process, above the standard ones; those above CHANNEL only until its exec. */
#define CHANNEL 3
#define FAILURE 4

/* The process's ends. */
struct theirs {
	int in;
	int out;
	int err;
	int channel;
	int failure;
	int terminal;
};

#define THEIRS_NONE {-1, -1, -1, -1, -1, -1}

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

/* The user may open /dev/stdout and the like by name, so the streams are theirs. */
static int give_streams(const struct spawn_request *request, const struct user *user)
{
	bool has_terminal = request->columns > 0;

	for (int stream = has_terminal ? 0 : 1; stream <= (has_terminal ? 0 : 2); stream++)
		if (fchown(stream, user->uid, user->gid) < 0)
			return fail("hand the streams to the user");
	return 0;
}

/* Moves what is kept above all numbers that are assigned, then assigns. */
static int take_descriptors(const struct theirs *theirs, bool keeps_layers)
{
	bool has_terminal = theirs->terminal >= 0;
	const int wanted[] = {
		has_terminal ? theirs->terminal : theirs->in,
		has_terminal ? theirs->terminal : theirs->out,
		has_terminal ? theirs->terminal : theirs->err,
		theirs->channel,
		theirs->failure,
	};
	int moved[5];

	for (int i = 0; i < 5; i++)
		if (wanted[i] >= 0 && (moved[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, FAILURE + 1)) < 0)
			return fail("move a descriptor");
	for (int i = 0; i < 5; i++) {
		if (wanted[i] < 0)
			close(i);
		else if (dup3(moved[i], i, i == FAILURE ? O_CLOEXEC : 0) < 0)
			return fail("assign descriptor %d", i);
	}
	return keeps_layers ? descriptors_close_from_but(FAILURE + 1, SANDBOX_STATES, SANDBOX_LAST)
			  : descriptors_close_from(FAILURE + 1);
}

static int enter_terminal(const struct spawn_request *request)
{
	if (setsid() < 0)
		return fail("start a session");
	if (request->columns > 0 && ioctl(0, TIOCSCTTY, 0) < 0)
		return fail("take the terminal");
	return 0;
}

/* As root, so that a directory of root can be given to the user. Only new directories are. */
static int make_directories(const char *path, const struct user *user)
{
	char part[4096];
	size_t length = strlen(path);

	if (path[0] != '/' || length >= sizeof(part)) {
		errno = path[0] == '/' ? ENAMETOOLONG : EINVAL;
		return fail("the directory %.100s", path);
	}
	for (size_t end = 1; end <= length; end++) {
		if (path[end] != '/' && path[end] != '\0')
			continue;
		memcpy(part, path, end);
		part[end] = '\0';
		if (mkdir(part, 0755) == 0) {
			if (lchown(part, user->uid, user->gid) < 0)
				return fail("give %.100s to the user", part);
		} else if (errno != EEXIST) {
			return fail("make %.100s", part);
		}
	}
	return 0;
}

static int enter_directory(const struct spawn_request *request)
{
	return chdir(request->cwd) < 0 ? fail("enter %.150s", request->cwd) : 0;
}

/* Variables of the request come first; what is not among them comes from the user's entry. */
static void add_home(const struct spawn_request *request, const struct user *user)
{
	static char home[USER_HOME_BYTES + 8];
	char **env = request->env;

	for (; *env != NULL; env++)
		if (strncmp(*env, "HOME=", 5) == 0)
			return;
	snprintf(home, sizeof(home), "HOME=%s", user->home);
	*env = home; /* request_parse leaves room for it */
}

static _Noreturn void give_up(void)
{
	const char *text = fail_text();
	ssize_t sent = write(FAILURE, text, strlen(text));

	_exit(sent < 0 ? 126 : 127);
}

/* The failure descriptor is assigned first, so that everything after it can be reported. */
static void become(const struct spawn_request *request, const struct preparation *limits, const struct theirs *theirs)
{
	struct user user;

	if (take_descriptors(theirs, request->builtin == BUILTIN_RESTORE) < 0)
		_exit(126);
	if (users_find(&user, request->user) < 0 || give_streams(request, &user) < 0)
		give_up();
	umask(022);
	if (enter_terminal(request) < 0 || ids_offer_to_oom_killer() < 0 || ids_limit(limits) < 0)
		give_up();
	if (request->makes_cwd && make_directories(request->cwd, &user) < 0)
		give_up();
	if (users_become(&user) < 0 || enter_directory(request) < 0 || signals_reset() < 0)
		give_up();
	add_home(request, &user);
}

static _Noreturn void become_program(const struct spawn_request *request)
{
	environ = request->env; /* execvp searches the PATH of the process */
	if (request->builtin != BUILTIN_NONE) {
		close(FAILURE);
		builtin_run(request->builtin, request->args);
	}
	execvp(request->args[0], request->args);
	fail("%.180s", request->args[0]);
	give_up();
}

pid_t spawn(const struct spawn_request *request, const struct preparation *limits, struct spawn_ends *ends)
{
	struct theirs theirs = THEIRS_NONE;
	pid_t pid = -1;

	*ends = (struct spawn_ends)SPAWN_ENDS_NONE;
	if (open_streams(request, ends, &theirs) == 0) {
		pid = fork();
		if (pid == 0) {
			become(request, limits, &theirs);
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
