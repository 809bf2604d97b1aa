#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices.h"
#include "ids.h"
#include "mounts.h"

/* For speed only; the kernel refuses more than fs.pipe-max-size, which is ignored. */
#define PIPE_BYTES (1024 * 1024)

/* Opens a pipe of the program. It belongs to the user of the jail, who may so open /dev/stdout and the like by name. */
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
	/* SCM_CREDENTIALS: the kernel adds the pid of the sender as the reader sees it, so that the guest learns the pid of
	 * the main process in the slot, which no process of the jail can name. */
	if (setsockopt(channel[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return fail("ask for pids on the channel");
	return fcntl(channel[0], F_SETFL, O_NONBLOCK) < 0 ? fail("make the channel non-blocking") : 0;
}

int jail_open_control(struct jail *jail, int *theirs)
{
	return open_channel(&jail->control_fd, theirs);
}

bool jail_is_fed(const struct preparation *p)
{
	return p->root_disk != NULL || p->has_stdin || p->prewarm != PREWARM_NONE || (p->code_file == NULL && p->code_bytes > 0);
}

static int open_child_fds(struct jail *jail, struct child_fds *child_fds, const struct preparation *p)
{
	bool fed = jail_is_fed(p);

	if (open_pipe(&jail->out, &child_fds->out, PIPE_BYTES) < 0 || open_pipe(&jail->err, &child_fds->err, PIPE_BYTES) < 0)
		return -1;
	if (open_pipe(&jail->pictures, &child_fds->pictures, 0) < 0)
		return -1;
	if (fed && open_pipe(&child_fds->in, &jail->in, p->code_bytes + p->stdin_bytes > 65536 ? PIPE_BYTES : 0) < 0)
		return -1;
	if (!fed && (child_fds->in = open(DEVICES "/null", O_RDONLY | O_CLOEXEC)) < 0)
		return fail("open " DEVICES "/null");
	if (open_channel(&jail->channel, &child_fds->channel) < 0)
		return -1;
	const int ours[] = {jail->out, jail->err, jail->pictures, jail->in};
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (ours[i] >= 0 && fcntl(ours[i], F_SETFL, O_NONBLOCK) < 0)
			return fail("make a descriptor non-blocking");
	return 0;
}

void child_fds_close(struct child_fds *child_fds)
{
	jail_close(&child_fds->channel);
	jail_close(&child_fds->in);
	jail_close(&child_fds->out);
	jail_close(&child_fds->err);
	jail_close(&child_fds->pictures);
}

int jail_open(struct jail *jail, struct child_fds *child_fds, const struct preparation *p)
{
	*jail = (struct jail)JAIL_NONE;
	*child_fds = (struct child_fds)CHILD_FDS_NONE;
	if (mounts_prepare_run(p) == 0 && open_child_fds(jail, child_fds, p) == 0)
		return 0;
	child_fds_close(child_fds);
	jail_forget(jail);
	return -1;
}

/* Only REPORT_MADE carries descriptors: all namespaces, and the code file of a jail that has one; or all for the spare interpreter. */
static int keep_passed(struct jail *jail, const struct cmsghdr *header)
{
	size_t bytes = header->cmsg_len - CMSG_LEN(0);

	if (bytes != JAIL_NAMESPACES * sizeof(int) && bytes != JAIL_CGROUP * sizeof(int) && bytes != JAIL_PASSED * sizeof(int))
		return -1;
	memcpy(jail->passed, CMSG_DATA(header), bytes);
	return 0;
}

int jail_report(struct jail *jail, int from, struct report *report)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(jail->passed))];
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
		else if (header->cmsg_type != SCM_RIGHTS || keep_passed(jail, header) < 0)
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

int jail_send_request(const struct jail *jail, struct run_request request)
{
	ssize_t sent = send(jail->control_fd, &request, sizeof(request), MSG_NOSIGNAL);

	return sent == sizeof(request) ? 0 : -1;
}

void jail_kill(const struct jail *jail)
{
	if (jail->init > 0) /* -1 would mean every process */
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
	jail_close(&jail->pictures);
	jail_close(&jail->control_fd);
	for (size_t i = 0; i < JAIL_PASSED; i++)
		jail_close(&jail->passed[i]);
}
