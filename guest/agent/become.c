#include "become.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../descriptors.h"
#include "../fail.h"
#include "../ids.h"
#include "../sandbox.h"
#include "../signals.h"
#include "users.h"

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

_Noreturn void become_give_up(void)
{
	const char *text = fail_text();
	ssize_t sent = write(FAILURE, text, strlen(text));

	_exit(sent < 0 ? 126 : 127);
}

/* The failure descriptor is assigned first, so that everything after it can be reported. */
void become(const struct spawn_request *request, const struct preparation *limits, const struct theirs *theirs,
	    bool keeps_layers)
{
	struct user user;

	if (take_descriptors(theirs, keeps_layers) < 0)
		_exit(126);
	if (users_find(&user, request->user) < 0 || give_streams(request, &user) < 0)
		become_give_up();
	umask(022);
	if (enter_terminal(request) < 0 || ids_offer_to_oom_killer() < 0 || ids_limit(limits) < 0)
		become_give_up();
	if (request->makes_cwd && make_directories(request->cwd, &user) < 0)
		become_give_up();
	if (users_become(&user) < 0 || enter_directory(request) < 0)
		become_give_up();
	add_home(request, &user);
}

_Noreturn void become_execute(const struct spawn_request *request)
{
	if (signals_reset() < 0)
		become_give_up();
	environ = request->env; /* execvp searches the PATH of the process */
	execvp(request->args[0], request->args);
	fail("%.180s", request->args[0]);
	become_give_up();
}
