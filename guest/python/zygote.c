/* The Python zygote: a shared object that an unmodified python3 is started with (LD_PRELOAD).
 *
 * The interpreter is started as `python3 -u FILE`. It initializes itself completely and then opens its program, with no
 * frame on its stack. This object intercepts that call: the first one imports the modules to preload and then forks for each
 * run. The child joins its jail, and the call returns the file of its program. So parsing, tracebacks, shutdown and exit
 * code are those of the interpreter, and nothing is imitated.
 *
 * Only the child reads its request, from a pipe of its own: no fork ever contains code or variables of another run.
 *
 * An interpreter that is started for one run is preloaded with this object too, without PRELOAD_VARIABLE: like a fork, it
 * imports from the home directory first. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fail.h"
#include "../pass.h"
#include "../seccomp.h"
#include "child.h"
#include "interpreter.h"
#include "own-file.h"
#include "report.h"
#include "spare.h"

#define CHILDREN_MAX 4

/* Names of the modules to preload, separated by commas. */
#define PRELOAD_VARIABLE "GLOVEBOX_PRELOAD"

/* Present where this is the spare interpreter of a slot. */
#define SPARE_VARIABLE "GLOVEBOX_SPARE"

/* The program, as the interpreter names it on its command line. */
#define PROGRAM_VARIABLE "GLOVEBOX_PROGRAM"

/* Makes the cgroup of runs the root that every fork sees, once the runner has moved the zygote there. */
static int root_at_cgroup_of_runs(void)
{
	static bool is_done;

	if (is_done)
		return 0;
	is_done = unshare(CLONE_NEWCGROUP) == 0;
	return is_done ? 0 : fail("make a cgroup namespace");
}

/* Forks into the pid namespace of a jail. Returns the pid of the child, 0 in the child, or -1 with fail_text. */
static pid_t fork_into(const int passed[JOIN_DESCRIPTORS])
{
	if (root_at_cgroup_of_runs() < 0)
		return -1;
	if (setns(passed[JOIN_PID], CLONE_NEWPID) < 0)
		return fail("select the pid namespace of the jail");
	pid_t child = interpreter_fork();
	int error = errno;
	if (child == 0)
		return 0;
	if (setns(ZYGOTE_PID_NAMESPACE, CLONE_NEWPID) < 0) {
		fail("return to the pid namespace of the slot");
		report_failure(fail_text());
	}
	errno = error;
	return child < 0 ? fail("fork for a run") : child;
}

struct children {
	struct pollfd watches[1 + CHILDREN_MAX]; /* the first is the socket */
	pid_t pids[1 + CHILDREN_MAX];
};

static void reap(struct children *children)
{
	int status;

	for (size_t i = 1; i <= CHILDREN_MAX; i++) {
		if (children->watches[i].fd < 0 || children->watches[i].revents == 0)
			continue;
		if (waitpid(children->pids[i], &status, 0) == children->pids[i])
			report_send(ZYGOTE_STATUS, children->pids[i], status);
		close(children->watches[i].fd);
		children->watches[i].fd = -1;
	}
}

static void keep_child(struct children *children, pid_t child)
{
	for (size_t i = 1; i <= CHILDREN_MAX; i++) {
		if (children->watches[i].fd >= 0)
			continue;
		children->pids[i] = child;
		children->watches[i] = (struct pollfd){
			.fd = (int)syscall(SYS_pidfd_open, child, 0),
			.events = POLLIN,
		};
		if (children->watches[i].fd >= 0) {
			report_send(ZYGOTE_FORKED, child, 0);
			return;
		}
	}
	fail("watch a child");
	report_failure(fail_text());
}

/* Forks on request. Returns only in a child, whose source text is in its file then. */
static void serve(void)
{
	struct children children;
	struct join join;
	int passed[JOIN_DESCRIPTORS];

	for (size_t i = 0; i <= CHILDREN_MAX; i++)
		children.watches[i] = (struct pollfd){.fd = i == 0 ? ZYGOTE_SOCKET : -1, .events = POLLIN};
	report_send(ZYGOTE_READY, 0, 0);
	for (;;) {
		if (poll(children.watches, 1 + CHILDREN_MAX, -1) < 0)
			continue;
		reap(&children);
		if (children.watches[0].revents == 0)
			continue;
		size_t count;
		if (pass_receive(ZYGOTE_SOCKET, &join, sizeof(join), passed, JOIN_DESCRIPTORS, &count) <= 0 ||
		    count != JOIN_DESCRIPTORS)
			_exit(0); /* the guest is gone */
		pid_t child = fork_into(passed);
		if (child == 0) {
			child_become_run(&join, passed);
			return;
		}
		if (child < 0)
			report_failure(fail_text());
		keep_child(&children, child);
		for (size_t i = 0; i < JOIN_DESCRIPTORS; i++)
			close(passed[i]);
	}
}

static char program[256];
static char preload[4096];
static bool is_zygote;
static bool is_spare;

typedef FILE *(*opener)(const char *, const char *);

/* Opens a file; before the program is opened for the first time, makes the process one of its run. */
static FILE *open_file(const char *name, const char *path, const char *mode)
{
	opener usual = NULL;

	*(void **)&usual = dlsym(RTLD_NEXT, name);
	if (program[0] == '\0' || strcmp(path, program) != 0)
		return usual(path, mode);
	/* The interpreter may have released its lock for this call. */
	int lock = interpreter_lock();
	if (is_spare) {
		spare_offer();
		interpreter_unlock(lock);
		program[0] = '\0';
		return usual(path, mode);
	}
	if (is_zygote) {
		interpreter_preload(preload);
		serve();
	}
	interpreter_import_from_home(program);
	char copy[1100];
	enum own_file own = own_file_copy(program, copy, sizeof(copy));
	if (own != OWN_FILE_ORIGINAL)
		interpreter_set_file(copy);
	if (own == OWN_FILE_COPY_AS_ARGUMENT)
		interpreter_set_first_argument(copy);
	interpreter_unlock(lock);
	program[0] = '\0';
	return usual(path, mode);
}

__attribute__((visibility("default"))) FILE *fopen(const char *restrict path, const char *restrict mode)
{
	return open_file("fopen", path, mode);
}

/* The same function; the name depends on how the interpreter was compiled. */
__attribute__((visibility("default"))) FILE *fopen64(const char *restrict path, const char *restrict mode)
{
	return open_file("fopen64", path, mode);
}

/* Removes a variable, from the environment block that /proc shows as well. */
static void hide_variable(const char *name)
{
	char *value = getenv(name);

	if (value == NULL)
		return;
	memset(value, 0, strlen(value));
	unsetenv(name);
}

/* What the run itself has in LD_PRELOAD follows the path of this object and a colon. */
static void restore_ld_preload(void)
{
	const char *value = getenv("LD_PRELOAD");
	const char *rest = value == NULL ? NULL : strchr(value, ':');
	char *kept = rest == NULL ? NULL : strdup(rest + 1);

	hide_variable("LD_PRELOAD");
	if (kept != NULL)
		setenv("LD_PRELOAD", kept, 1);
	free(kept);
}

__attribute__((constructor)) static void become_zygote(void)
{
	const char *path = getenv(PROGRAM_VARIABLE);
	const char *names = getenv(PRELOAD_VARIABLE);

	if (path == NULL)
		return;
	strncpy(program, path, sizeof(program) - 1);
	if (names != NULL)
		strncpy(preload, names, sizeof(preload) - 1);
	is_zygote = names != NULL;
	is_spare = getenv(SPARE_VARIABLE) != NULL;
	hide_variable(SPARE_VARIABLE);
	hide_variable(PROGRAM_VARIABLE);
	hide_variable(PRELOAD_VARIABLE);
	restore_ld_preload();
	if ((is_zygote || is_spare) && seccomp_build() < 0)
		report_failure(fail_text());
}
