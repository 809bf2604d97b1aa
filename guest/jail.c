#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#include "handover.h"
#include "ids.h"
#include "mounts.h"
#include "net.h"
#include "pass.h"
#include "seccomp.h"
#include "signals.h"

/* Where init and the main process find their end of the channel, behind the three standard descriptors. */
#define CHANNEL 3

/* Best effort, for speed only: up to what fs.pipe-max-size allows anybody. */
#define PIPE_BYTES (1024 * 1024)

#define EXIT_JAIL_FAILED 70
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127

static void tell(uint8_t kind, int32_t value)
{
	struct report report = {.kind = kind, .value = value};

	if (kind == REPORT_FAILED)
		memcpy(report.text, fail_text(), sizeof(report.text));
	send(CHANNEL, &report, sizeof(report), MSG_NOSIGNAL);
}

static _Noreturn void give_up(void)
{
	tell(REPORT_FAILED, 0);
	_exit(EXIT_JAIL_FAILED);
}

/* Standard descriptors, images and the channel; everything else of the guest's is closed. */
static int take_descriptors(const struct ends *ends)
{
	if (dup2(ends->in, 0) < 0 || dup2(ends->out, 1) < 0 || dup2(ends->err, 2) < 0 ||
	    dup2(ends->images, IMAGES) < 0)
		return fail("standard descriptors");
	if (ends->channel != CHANNEL && dup3(ends->channel, CHANNEL, O_CLOEXEC) < 0)
		return fail("the channel");
	return descriptors_close_from_but(CHANNEL + 1, IMAGES);
}

static int wait_for_go(void)
{
	char go;
	ssize_t got;

	tell(REPORT_READY, 0);
	do
		got = recv(CHANNEL, &go, 1, 0);
	while (got < 0 && errno == EINTR);
	return got == 1 ? 0 : fail("wait for GO");
}

static _Noreturn void exec_program(const struct preparation *p)
{
	const char *reason = NULL;

	environ = p->env; /* execvp searches the PATH of the run, not the guest's */
	execvp(p->args[0], p->args);
	int error = errno;
	if (error == ENOENT && strchr(p->args[0], '/') == NULL)
		reason = "command not found";
	else
		reason = strerror(error);
	dprintf(2, "glovebox: %s: %s\n", p->args[0], reason);
	_exit(error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* From the jail's init to the user's program, in order. */
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
	exec_program(p);
}

/* Reaps until the main process ends, and reports that. When init exits, the kernel kills whatever else is left in
 * its pid namespace, before the guest is told of init's end. */
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
	tell(REPORT_STATUS, status);
	_exit(0);
}

/* Also for a reader of /proc in the jail: this is its init, and nobody's to look into. */
static void hide_init(void)
{
	if (prctl(PR_SET_NAME, "init", 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
		return;
	fail("hide the jail's init");
	give_up();
}

static void open_spaces(int spaces[JAIL_NAMESPACES])
{
	static const char *const names[] = {"pid", "mnt", "net", "ipc", "uts"};
	char path[32];

	for (size_t i = 0; i < JAIL_NAMESPACES; i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		spaces[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (spaces[i] < 0) {
			fail("open %s", path);
			give_up();
		}
	}
}

static void tell_made(const int spaces[JAIL_NAMESPACES])
{
	struct report report = {.kind = REPORT_MADE};

	if (pass_send(CHANNEL, &report, sizeof(report), spaces, JAIL_NAMESPACES) < 0)
		_exit(EXIT_JAIL_FAILED);
}

/* Storage may come after the program was started. */
static void offer_to_storage(void)
{
	int spaces[JAIL_NAMESPACES];

	open_spaces(spaces);
	tell_made(spaces);
	descriptors_close_from(CHANNEL + 1);
}

/* No main process of its own: a host's child joins. It is told which namespaces are the jail's, and waits for nothing
 * but orphans to reap, sealed as any init, until the guest kills it. */
static _Noreturn void await_guest(void)
{
	int spaces[JAIL_NAMESPACES];

	open_spaces(spaces);
	if (seccomp_load() < 0 || ids_drop_capabilities() < 0)
		give_up();
	tell_made(spaces);
	descriptors_close_from(0);
	for (;;) {
		sigset_t child;
		sigemptyset(&child);
		sigaddset(&child, SIGCHLD);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		sigwaitinfo(&child, NULL); /* blocked since the guest was born, so that none is missed */
	}
}

/* The handover, understood once more: what the guest understood is in its own memory. */
static void learn(struct preparation *p)
{
	size_t length;
	const uint8_t *payload = handover_payload(&length);
	const char *wrong = prepare_parse(p, payload, length);

	if (wrong == NULL)
		return;
	errno = EBADMSG;
	fail("%s", wrong);
	give_up();
}

/* Everything that makes the jail, in order. What is under the line has no way back. */
_Noreturn void jail_become_init(const struct ends *ends)
{
	struct preparation preparation;
	const struct preparation *p = &preparation;

	if (take_descriptors(ends) < 0)
		give_up();
	learn(&preparation);
	if (net_loopback_up() < 0 || mounts_enter(p, handover_source()) < 0)
		give_up();
	if (sethostname("glovebox", 8) < 0) {
		fail("set the host name");
		give_up();
	}
	handover_close();
	hide_init();
	if (p->ahead == AHEAD_JOINED)
		await_guest();
	if (p->ahead == AHEAD_STARTED)
		offer_to_storage();
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
	close(IMAGES);
	if (ids_drop_capabilities() < 0)
		give_up();
	reap(main);
}

/* One pipe of the program. Owned by its user, so that it may open /dev/stdout and its like by name. */
static int open_pipe(int *read_end, int *write_end, int size)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return fail("make a pipe");
	*read_end = ends[0];
	*write_end = ends[1];
	if (size > 0)
		fcntl(ends[0], F_SETPIPE_SZ, size);
	return fchown(ends[0], JAIL_UID, JAIL_GID) < 0 ? fail("hand a pipe to the program") : 0;
}

static int open_channel(int *ours, int *theirs)
{
	int channel[2];
	const int on = 1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0)
		return fail("make the channel");
	*ours = channel[0];
	*theirs = channel[1];
	/* The kernel adds the sender's pid to each report, in the reader's terms: so the guest learns the main
	 * process's pid in the slot, which nobody inside the jail knows. */
	if (setsockopt(channel[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return fail("ask for pids on the channel");
	return fcntl(channel[0], F_SETFL, O_NONBLOCK) < 0 ? fail("make the channel non-blocking") : 0;
}

int jail_open_talk(struct jail *jail, int *theirs)
{
	return open_channel(&jail->talk, theirs);
}

static int open_ends(struct jail *jail, struct ends *ends, const struct preparation *p)
{
	bool fed = p->has_stdin || p->ahead != AHEAD_NOT || (p->code_file == NULL && p->code_bytes > 0);

	if (open_pipe(&jail->out, &ends->out, PIPE_BYTES) < 0 || open_pipe(&jail->err, &ends->err, PIPE_BYTES) < 0)
		return -1;
	if (open_pipe(&jail->images, &ends->images, 0) < 0)
		return -1;
	if (fed && open_pipe(&ends->in, &jail->in, p->code_bytes + p->stdin_bytes > 65536 ? PIPE_BYTES : 0) < 0)
		return -1;
	if (!fed && (ends->in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
		return fail("open /dev/null");
	if (open_channel(&jail->channel, &ends->channel) < 0)
		return -1;
	const int ours[] = {jail->out, jail->err, jail->images, jail->in};
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (ours[i] >= 0 && fcntl(ours[i], F_SETFL, O_NONBLOCK) < 0)
			return fail("make a descriptor non-blocking");
	return 0;
}

void jail_close_ends(struct ends *ends)
{
	jail_close(&ends->channel);
	jail_close(&ends->in);
	jail_close(&ends->out);
	jail_close(&ends->err);
	jail_close(&ends->images);
}

int jail_open(struct jail *jail, struct ends *ends, const struct preparation *p)
{
	*jail = (struct jail)JAIL_NONE;
	*ends = (struct ends)ENDS_NONE;
	if (mounts_prepare_run(p) == 0 && open_ends(jail, ends, p) == 0)
		return 0;
	jail_close_ends(ends);
	jail_forget(jail);
	return -1;
}

/* Namespaces come with REPORT_MADE alone, and all at once. */
static int keep_spaces(struct jail *jail, const struct cmsghdr *header)
{
	if (header->cmsg_len != CMSG_LEN(sizeof(jail->spaces)))
		return -1;
	memcpy(jail->spaces, CMSG_DATA(header), sizeof(jail->spaces));
	return 0;
}

int jail_report(struct jail *jail, int from, struct report *report)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(jail->spaces))];
	} control;
	struct iovec body = {.iov_base = report, .iov_len = sizeof(*report)};
	struct msghdr message = {
		.msg_iov = &body,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct ucred sender = {.pid = 0};

	ssize_t got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if ((size_t)got < sizeof(*report))
		return -1;
	report->text[sizeof(report->text) - 1] = '\0';
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level != SOL_SOCKET)
			return -1;
		if (header->cmsg_type == SCM_CREDENTIALS)
			memcpy(&sender, CMSG_DATA(header), sizeof(sender));
		else if (header->cmsg_type != SCM_RIGHTS || keep_spaces(jail, header) < 0)
			return -1;
	}
	if (report->kind == REPORT_READY)
		report->value = sender.pid;
	return report->kind == REPORT_READY && sender.pid == 0 ? -1 : 1;
}

int jail_go(const struct jail *jail)
{
	return send(jail->channel, "", 1, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

int jail_tell(const struct jail *jail, struct join_request request)
{
	ssize_t sent = send(jail->talk, &request, sizeof(request), MSG_NOSIGNAL);

	return sent == sizeof(request) ? 0 : -1;
}

void jail_kill(const struct jail *jail)
{
	if (jail->init > 0) /* a negative number would mean everybody */
		kill(jail->init, SIGKILL);
}

void jail_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void jail_forget(struct jail *jail)
{
	jail_close(&jail->channel);
	jail_close(&jail->in);
	jail_close(&jail->out);
	jail_close(&jail->err);
	jail_close(&jail->images);
	jail_close(&jail->talk);
	for (size_t i = 0; i < JAIL_NAMESPACES; i++)
		jail_close(&jail->spaces[i]);
}
