#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "code-file.h"
#include "descriptors.h"
#include "handover.h"
#include "ids.h"
#include "mounts.h"
#include "net.h"
#include "pass.h"
#include "sandbox.h"
#include "seccomp-set-id.h"
#include "seccomp.h"
#include "signals.h"

/* The descriptor of the channel in init and in the main process. */
#define CHANNEL 3

#define EXIT_JAIL_FAILED 70
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127

static void send_report(uint8_t kind, int32_t value)
{
	struct report report = {.kind = kind, .value = value};

	if (kind == REPORT_FAILED)
		memcpy(report.text, fail_text(), sizeof(report.text));
	send(CHANNEL, &report, sizeof(report), MSG_NOSIGNAL);
}

static _Noreturn void give_up(void)
{
	send_report(REPORT_FAILED, 0);
	_exit(EXIT_JAIL_FAILED);
}

/* Installs the standard descriptors, PICTURES_FD and the channel; closes everything else that the guest had open. */
static int take_descriptors(const struct child_fds *child_fds)
{
	if (dup2(child_fds->in, 0) < 0 || dup2(child_fds->out, 1) < 0 || dup2(child_fds->err, 2) < 0 ||
	    dup2(child_fds->pictures, PICTURES_FD) < 0)
		return fail("standard descriptors");
	if (child_fds->channel != CHANNEL && dup3(child_fds->channel, CHANNEL, O_CLOEXEC) < 0)
		return fail("the channel");
	return descriptors_close_from_but(CHANNEL + 1, PICTURES_FD, PICTURES_FD);
}

static int wait_for_go(void)
{
	char go;
	ssize_t got;

	send_report(REPORT_READY, 0);
	do
		got = recv(CHANNEL, &go, 1, 0);
	while (got < 0 && errno == EINTR);
	return got == 1 ? 0 : fail("wait for GO");
}

static _Noreturn void exec_program(const struct preparation *p)
{
	const char *reason = NULL;

	environ = p->env; /* execvp searches the PATH of the run, not of the guest */
	execvp(p->args[0], p->args);
	int error = errno;
	if (error == ENOENT && strchr(p->args[0], '/') == NULL)
		reason = "command not found";
	else
		reason = strerror(error);
	dprintf(2, "glovebox: %s: %s\n", p->args[0], reason);
	_exit(error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* From the init of the jail to the program of the user, step by step. */
static _Noreturn void main_process(const struct preparation *p)
{
	umask(022);
	if (ids_offer_to_oom_killer() < 0 || ids_limit(p) < 0 || ids_become_user() < 0 || signals_reset() < 0)
		give_up();
	if (setsid() < 0 || chdir(p->home) < 0) {
		fail("enter %s in a session of its own", p->home);
		give_up();
	}
	if (wait_for_go() < 0)
		give_up();
	code_file_copy(p);
	exec_program(p);
}

/* Reaps until the main process ends, and reports its status. When init exits, the kernel kills every other process of
 * its pid namespace before the guest receives SIGCHLD for init. */
static _Noreturn void reap(pid_t main)
{
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, 0);
		if (pid == main)
			break;
		if (pid < 0 && errno != EINTR)
			_exit(EXIT_JAIL_FAILED);
	}
	send_report(REPORT_STATUS, status);
	_exit(0);
}

/* Names the init, and hides its memory and descriptors from readers of /proc in the jail. */
static void hide_init(void)
{
	if (prctl(PR_SET_NAME, "init", 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
		return;
	fail("hide the jail's init");
	give_up();
}

static int open_namespace(const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		fail("open %s", path);
		give_up();
	}
	return fd;
}

static void open_namespaces(int passed[JAIL_PASSED])
{
	static const char *const names[] = {"pid", "mnt", "net", "ipc", "uts"};

	for (size_t i = 0; i < JAIL_NAMESPACES; i++)
		passed[i] = open_namespace(names[i]);
}

static void report_made(const int passed[JAIL_PASSED], size_t count)
{
	struct report report = {.kind = REPORT_MADE};

	if (pass_send(CHANNEL, &report, sizeof(report), passed, count) < 0)
		_exit(EXIT_JAIL_FAILED);
}

/* Lets storage be attached, and the source text be written, after the program has been started. */
static void offer_mount_namespace(int code)
{
	int passed[JAIL_PASSED] = {[JAIL_CODE] = code};

	open_namespaces(passed);
	report_made(passed, code < 0 ? JAIL_NAMESPACES : JAIL_CGROUP);
	descriptors_close_from(CHANNEL + 1);
}

/* The init of a jail that the zygote's child joins: it has no main process of its own. Reports the namespaces of the jail,
 * confines itself as any init, and reaps orphans until the guest kills it. */
static _Noreturn void wait_as_init(int code)
{
	int passed[JAIL_PASSED] = {[JAIL_CODE] = code};

	open_namespaces(passed);
	if (seccomp_load() < 0 || ids_drop_capabilities() < 0)
		give_up();
	report_made(passed, code < 0 ? JAIL_NAMESPACES : JAIL_CGROUP);
	descriptors_close_from(0);
	for (;;) {
		sigset_t child;
		sigemptyset(&child);
		sigaddset(&child, SIGCHLD);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		sigwaitinfo(&child, NULL); /* blocked in the guest already, so that none is missed */
	}
}

/* Parses the PREPARE frame once more: what the guest parsed is in its own memory. */
static void parse_handover(struct preparation *p)
{
	size_t length;
	const uint8_t *payload = handover_payload(&length);
	const char *error = prepare_parse(p, payload, length);

	if (error == NULL)
		return;
	errno = EBADMSG;
	fail("%s", error);
	give_up();
}

/* Opens the standard input of a program without input by its name in the jail, which /proc/self/fd shows. */
static int open_input(void)
{
	int input = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (input < 0 || dup2(input, 0) < 0)
		return fail("open /dev/null");
	close(input);
	return 0;
}

/* Gives the spare interpreter what its fork needs to be a process of this sandbox. The agent keeps the other end of a socket. */
static void offer_to_spare(void)
{
	int passed[JAIL_PASSED];
	int ends[2];

	open_namespaces(passed);
	passed[JAIL_CGROUP] = open_namespace("cgroup");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0 || dup3(ends[0], SANDBOX_SPARE, O_CLOEXEC) < 0) {
		fail("make the socket to the spare interpreter");
		give_up();
	}
	passed[JAIL_SPARE] = ends[1];
	report_made(passed, JAIL_PASSED);
	close(ends[0]);
	for (size_t i = 0; i < JAIL_PASSED; i++)
		close(passed[i]);
}

/* The init of a sandbox is its agent: no process inside can kill it, and it reaps all of them. */
static _Noreturn void become_agent(const struct preparation *p)
{
	if (p->takes_spare)
		offer_to_spare();
	if (ids_become_sandbox_root() < 0 || (p->forbids_set_id && seccomp_forbid_set_id() < 0))
		give_up();
	if (seccomp_load() < 0 || wait_for_go() < 0)
		give_up();
	close(PICTURES_FD);
	agent_serve(p);
}

/* Every step that makes the jail, in order. Those from seccomp_load on cannot be undone. */
_Noreturn void jail_become_init(const struct child_fds *child_fds)
{
	struct preparation preparation;
	const struct preparation *p = &preparation;

	if (take_descriptors(child_fds) < 0)
		give_up();
	parse_handover(&preparation);
	if (net_loopback_up() < 0)
		give_up();
	int code = p->root_disk != NULL ? sandbox_enter(p) < 0 ? -1 : NO_CODE : mounts_enter(p);
	if (code == -1 || (!jail_is_fed(p) && open_input() < 0))
		give_up();
	if (p->prewarm == PREWARM_NONE && code >= 0 && code_file_write(code, handover_source(), p->code_bytes) < 0)
		give_up();
	if (sethostname("glovebox", 8) < 0) {
		fail("set the host name");
		give_up();
	}
	handover_close();
	hide_init();
	if (p->root_disk != NULL)
		become_agent(p);
	if (p->prewarm == PREWARM_FORK)
		wait_as_init(code);
	if (p->prewarm == PREWARM_EXEC)
		offer_mount_namespace(code);
	if (seccomp_load() < 0)
		give_up();

	pid_t main = fork();
	if (main < 0) {
		fail("fork the main process");
		give_up();
	}
	if (main == 0)
		main_process(p);
	close(0);
	close(1);
	close(2);
	close(PICTURES_FD);
	if (ids_drop_capabilities() < 0)
		give_up();
	reap(main);
}
