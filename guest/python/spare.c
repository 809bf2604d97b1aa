#include "spare.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../agent/become.h"
#include "../descriptors.h"
#include "../ids.h"
#include "../jail.h"
#include "../pass.h"
#include "../seccomp.h"
#include "../zygote-protocol.h"
#include "interpreter.h"
#include "own-words.h"
#include "report.h"

/* The socket to the agent, in the child until it has its request: above the numbers that are assigned. */
#define AGENT 5

/* A sandbox in which no Python kernel was started by then is likely to need none, and has the memory back. */
#define WANTED_WITHIN_MS 60000

/* Exits when the guest or the agent is gone, or when no kernel is wanted in time. */
static void await_sandbox(struct spare_join *join, int passed[JAIL_PASSED])
{
	size_t count;
	char byte;

	if (pass_receive(ZYGOTE_SOCKET, join, sizeof(*join), passed, JAIL_PASSED, &count) <= 0 || count != JAIL_PASSED)
		_exit(0);
	struct pollfd watches[] = {
		{.fd = passed[JAIL_SPARE], .events = POLLIN},
		{.fd = ZYGOTE_SOCKET, .events = POLLIN},
	};
	int ready;
	do
		ready = poll(watches, 2, WANTED_WITHIN_MS);
	while (ready < 0 && errno == EINTR);
	if (ready <= 0 || watches[1].revents != 0 || recv(passed[JAIL_SPARE], &byte, 1, 0) != 1)
		_exit(0);
}

/* Returns in a process of the sandbox, whose parent has ended: so it is a child of the agent, the init of its pid namespace, as a
 * process is that the agent starts. */
static void fork_into(int pid_namespace)
{
	if (setns(pid_namespace, CLONE_NEWPID) < 0)
		_exit(EXIT_ZYGOTE_FAILED);
	interpreter_before_fork();
	pid_t parent = fork();
	if (parent > 0) {
		waitpid(parent, NULL, 0);
		_exit(0);
	}
	if (parent < 0 || fork() != 0)
		_exit(EXIT_ZYGOTE_FAILED);
}

/* Joins the namespaces of the sandbox, with the rights of its agent from then on. */
static int enter_sandbox(const int passed[JAIL_PASSED])
{
	static const struct {
		enum jail_passed descriptor;
		int type;
	} namespaces[] = {
		{JAIL_NET, CLONE_NEWNET}, {JAIL_IPC, CLONE_NEWIPC}, {JAIL_UTS, CLONE_NEWUTS},
		{JAIL_CGROUP, CLONE_NEWCGROUP}, {JAIL_MNT, CLONE_NEWNS},
	};

	/* Until it is the user: as the agent. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return fail("hide the memory of the process");
	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
		if (setns(passed[namespaces[i].descriptor], namespaces[i].type) < 0)
			return fail("join a namespace of the sandbox");
	int agent = fcntl(passed[JAIL_SPARE], F_DUPFD_CLOEXEC, JAIL_PASSED + ZYGOTE_PID_NAMESPACE + 1);
	if (agent < 0 || dup3(agent, AGENT, O_CLOEXEC) < 0)
		return fail("keep the socket to the agent");
	for (int fd = 0; fd < AGENT; fd++)
		close(fd);
	return descriptors_close_from(AGENT + 1);
}

struct message {
	struct spare_request request;
	uint8_t *records;
	struct theirs theirs;
};

/* Code of the sandbox may have taken the agent over, so each size of its message is checked. */
static int receive(struct message *message)
{
	struct spare_request *request = &message->request;
	int passed[SPARE_DESCRIPTORS];
	size_t count;

	if (pass_receive(AGENT, request, sizeof(*request), passed, SPARE_DESCRIPTORS, &count) <= 0 ||
	    count != SPARE_DESCRIPTORS)
		return -1;
	message->theirs = (struct theirs){
		.in = passed[SPARE_IN],
		.out = passed[SPARE_OUT],
		.err = passed[SPARE_ERR],
		.channel = passed[SPARE_CHANNEL],
		.failure = passed[SPARE_FAILURE],
		.terminal = -1,
	};
	if (request->bytes > SPARE_REQUEST_MAX_BYTES || request->args_bytes > SPARE_REQUEST_MAX_BYTES ||
	    request->env_bytes > SPARE_REQUEST_MAX_BYTES)
		return -1;
	message->records = malloc(request->bytes);
	return message->records != NULL &&
		       recv(AGENT, message->records, request->bytes, MSG_WAITALL) == (ssize_t)request->bytes ? 0 : -1;
}

/* Becomes the requested process, up to its program. */
static void become_requested(const struct spare_join *join, struct message *message, struct own_words *words,
			     struct spawn_request *request)
{
	const struct preparation limits = {
		.open_files = join->open_files,
		.file_bytes = join->file_bytes,
		.pids = join->pids,
	};

	bool is_shown = own_words_show(words, message->request.args_bytes, message->request.env_bytes) == 0;
	if (ids_become_sandbox_root() < 0 || seccomp_load() < 0 ||
	    request_parse(request, message->records, message->request.bytes) != NULL)
		_exit(EXIT_ZYGOTE_FAILED);
	free(message->records);
	become(request, &limits, &message->theirs, false);
	if (!is_shown || own_words_set(words, request->args, request->env) < 0)
		become_execute(request);
	/* As exec does: otherwise root would own everything in /proc/self. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		become_execute(request);
}

/* The function that the program calls. Returns in the kernel. */
static void *wait_for_sandbox(void *self, void *fits)
{
	struct spare_join join;
	struct message message = {.records = NULL};
	struct own_words words;
	struct spawn_request request;
	int passed[JAIL_PASSED];

	(void)self;
	report_send(ZYGOTE_READY, 0, 0);
	await_sandbox(&join, passed);
	fork_into(passed[JAIL_PID]);
	const int32_t pid = getpid();
	if (send(passed[JAIL_SPARE], &pid, sizeof(pid), MSG_NOSIGNAL) != sizeof(pid) || enter_sandbox(passed) < 0 ||
	    receive(&message) < 0)
		_exit(EXIT_ZYGOTE_FAILED);
	become_requested(&join, &message, &words, &request);
	interpreter_after_fork();
	if (!interpreter_agrees(fits, words.args, words.args_bytes, words.env, words.env_bytes))
		become_execute(&request);
	request_forget(&request);
	close(FAILURE);
	return interpreter_none();
}

void spare_offer(void)
{
	interpreter_add_builtin("_glovebox_spare", wait_for_sandbox);
}
