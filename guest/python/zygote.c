/* The Python zygote: a shared object that an unmodified python3 is started with (LD_PRELOAD).
 *
 * The interpreter is started as `python3 -u -`. It initializes itself completely and then reads its program from standard
 * input, with no frame on its stack. This object replaces that stream: the first read imports the modules to preload and
 * then forks for each run. The child joins its jail, and its read returns the source text of the run. So parsing,
 * tracebacks, shutdown and exit code are those of the interpreter, and nothing is imitated.
 *
 * Only the child reads its request, from a pipe of its own: no fork ever contains code or variables of another run. */
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
#include "report.h"

#define CHILDREN_MAX 4

/* Names of the modules to preload, separated by commas. */
#define PRELOAD_VARIABLE "GLOVEBOX_PRELOAD"

static struct program_text source;
static size_t source_read;

/* Forks into the pid namespace of a jail. Returns the pid of the child, 0 in the child, or -1 with fail_text. */
static pid_t fork_into(const int passed[JOIN_DESCRIPTORS])
{
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

/* Forks on request. Returns only in a child, which has its source text then. */
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
			child_become_run(&join, passed, &source);
			return;
		}
		if (child < 0)
			report_failure(fail_text());
		keep_child(&children, child);
		for (size_t i = 0; i < JOIN_DESCRIPTORS; i++)
			close(passed[i]);
	}
}

static char preload[4096];
static FILE *program;

/* The interpreter asks for the descriptor of its standard input, from which it makes sys.stdin: that of the real one. */
__attribute__((visibility("default"))) int fileno(FILE *file)
{
	static int (*usual)(FILE *);

	if (file == program)
		return 0;
	if (usual == NULL)
		*(void **)&usual = dlsym(RTLD_NEXT, "fileno");
	return usual(file);
}

/* Reads from the stream that replaces standard input. */
static ssize_t read_program(void *unused, char *into, size_t size)
{
	static bool has_served;

	(void)unused;
	if (!has_served) {
		has_served = true;
		interpreter_preload(preload);
		serve();
	}
	if (size > source.bytes - source_read)
		size = source.bytes - source_read;
	memcpy(into, source.text + source_read, size);
	source_read += size;
	return (ssize_t)size;
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

__attribute__((constructor)) static void become_zygote(void)
{
	const cookie_io_functions_t functions = {.read = read_program};
	const char *names = getenv(PRELOAD_VARIABLE);

	if (names == NULL)
		return;
	strncpy(preload, names, sizeof(preload) - 1);
	hide_variable(PRELOAD_VARIABLE);
	hide_variable("LD_PRELOAD");
	if (seccomp_build() < 0)
		report_failure(fail_text());
	program = fopencookie(NULL, "r", functions);
	if (program == NULL) {
		fail("take the place of standard input");
		report_failure(fail_text());
	}
	stdin = program;
}
